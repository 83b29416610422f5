"""Everything that the worker reads and writes at the target.

    records/      the meta schema: one module per record, schema.py with every CREATE TABLE (see RECORDS.md)
    tables/       merged tables: created, checked, indexes added after the load, which rows belong to which shard table
    apply/        a lane's batch becomes SQL, and affected-row counts prove the result
    quarantine/   changes that are not applied: held, or skipped by an operator

A batch goes through apply/; what the target refuses goes to quarantine/; the lane's checkpoint in records/ is written
in the same transaction as the rows (I2). tables/ comes before: it creates or checks the table that apply/ writes to.
"""
