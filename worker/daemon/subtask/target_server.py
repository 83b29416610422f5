"""Checks that the target has the records of a subtask that has run before.

Behind a proxy or a name that moves another server may answer after a failure. A replica has the rows and the records
of one moment, and the subtask continues there from its records. A server without records would get a second history,
while the first one stays where it is. Where another person has dropped the records, the history would be copied once
more into the tables that have it: a table without a key would get each row twice.
"""

from __future__ import annotations

from shardmerge.proto import errors
from shardmerge.worker.core.mysql.connection import Session, server_info
from shardmerge.worker.relay.fetch.server_id import server_of
from shardmerge.worker.target.records import subtask_record
from shardmerge.worker.target.records.schema import missing_tables
from shardmerge.worker.target.records.subtask_record import Phase


def check_target_server(
    target: Session, meta_schema: str, task: str, source: str, *, before: str, host: str, port: int, meta_token: str
) -> str:
    """Return the server of this session. ``before``: the server that had the records at the start of the run before,
    "": there was no such run since the last start-task. ``meta_token``: of this run.

    Raises TARGET_WITHOUT_RECORDS, RECORDS_LOST, and ``pymysql.MySQLError``.
    """
    now = server_of(server_info(target))
    row = subtask_record.find_row(target, meta_schema, task, source)
    if row is None and before not in ("", now):
        raise errors.replicate.TARGET_WITHOUT_RECORDS(
            task=task, source=source, host=host, port=port, schema=meta_schema, before=before, now=now
        )
    missing: list[str] = []
    if row is None:
        missing = [] if before == "" else ["its row of subtask"]
    elif row.phase is not Phase.NEW and not subtask_record.is_start_over(target, meta_schema, task, source, meta_token):
        copies = row.phase is Phase.SNAPSHOT or bool(row.joining)
        missing = [f"the table {name}" for name in missing_tables(target, meta_schema, copies=copies)]
    if missing:
        raise errors.replicate.RECORDS_LOST(
            task=task, source=source, host=host, port=port, schema=meta_schema, missing=", ".join(missing)
        )
    return now
