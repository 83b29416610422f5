"""Merged tables: created and checked, their deferred indexes, and which rows belong to which shard table.

make_targets           structures and rules become table plans; each target is created or checked
target_table           creates a merged table, or checks an existing one
column_fit             whether a target column holds every value of a source column (pure)
shard_groups           how the shard tables of a target differ (pure)
defer_indexes          drops the secondary indexes of a table that was just created
defer_existing         drops the secondary indexes of an existing, empty table
deferred_index         which indexes can be deferred, and when to add them (pure)
deferred_index_store   the record of deferred indexes
index_adder            adds deferred indexes after the load
row_ownership          which rows of a target table can belong to one shard table (pure)
"""
