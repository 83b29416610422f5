"""Step 2 of a DDL (optimistic): the joined schema of the shard tables of one target. Pure.

model       inputs and results
collations  those of the shard tables count as the target's, where no statement changes them
columns     the change of the target's columns; indexes: the change of its indexes
join        both together: the clauses of one ALTER TABLE of the target, or why there is no join
"""
