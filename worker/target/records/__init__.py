"""Records in the meta schema at the target: one module per record.

schema               every CREATE TABLE text; worker/target/RECORDS.md describes the tables
subtask_record       the subtask's row (epoch, phase) and its tables' structures; every write is fenced here (I3)
bounds               where replication begins for certain, and where it ended
partitioning         how rows are partitioned to lanes, recorded with the checkpoints
checkpoint           how far each lane has committed (I2)
history              the past of tables: passed watermarks, interrupted copies, tables without rows
joining_tables       tables that are joining a running subtask
ddl_progress         statements that were executed or begun, and each shard table's CREATE TABLE
operator_statements  an operator's statements that ran for a statement of the source
statement_session    the session in which a source's statement runs at the target
parked_tables        shard tables that are parked at a sharding DDL
executed_locks       the last lock whose statement ran at a target table
dropped_columns      columns that a shard table dropped while the target keeps them
shadow_tables        shadow tables of online schema changes
target_members       whose rows a target table may hold, from the records of all tasks
"""
