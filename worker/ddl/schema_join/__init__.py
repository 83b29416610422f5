"""Step 2 of a DDL (optimistic): the joined schema of the shard tables of one target. Pure.

model     inputs and results
columns   the change of the target's columns; indexes: the change of its indexes
join      both together: the clauses of one ALTER TABLE of the target, or why there is no join
"""
