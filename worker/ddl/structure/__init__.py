"""Step 2 of a DDL: the structure after a statement, computed by a server and recorded.

schema_tracker        runs a statement on an empty copy of a shard table at the target, and reads the result
structure_after       a shard table's structure after an ALTER TABLE, CREATE INDEX or DROP INDEX
structure_digest      digests of structures in one server's notation
recorded_structures   the recorded structures, and how one is replaced by hand
target_copy           empty copies of target tables for the dry run
"""
