"""Applies DDL statements of the binlog to the merged tables, each exactly once (I6).

driver.py leads. All lanes of a stream have stopped at the barrier before the statement. The steps, one folder each:

    1   sql/           read and rewrite statements on tokens (pure)
    1b  split/         an ALTER TABLE in the parts that the target combines (TiDB; pure)
    2a  schema_join/   the joined schema of the shard tables of one target (optimistic; pure)
    2b  structure/     the structure after a statement, computed by a server and recorded
    3   decide/        from a statement to actions, by the rules, event filters and operator overrides (pure)
    4   execute/       run the actions at the target, each statement once
    5   locks/         the subtask's side of the sharding-DDL locks (shard-mode)

online/ follows online schema changes of gh-ost and its like between steps 3 and 4. dry_run/ computes the effects of a
sharding DDL on a copy of the records (`shard-ddl preview`).

    statement ─▶ decide/statement_reader ─▶ online/ ─▶ decide/ddl_filter ─▶ decide/actions ─▶ execute/executor
              ─▶ one transaction: structures, partitioning, "executed" ─▶ the lanes resume
"""
