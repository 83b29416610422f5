"""The shard tables of a target table, from the records of all sources and tasks.

target_members   which shard tables may have rows in a target table, and which one has an id
member_cache     the same for one task, kept in memory: only changed records are read again
merged_targets   whether rows were merged into a target table, so that a missing one must not be created
"""
