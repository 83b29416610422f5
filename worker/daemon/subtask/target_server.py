"""Checks that the server at the target's address has the records of a subtask that has run before.

Behind a proxy or a name that moves another server may answer after a failure. A replica has the rows and the records
of one moment, and the subtask continues there from its records. A server without records would get a second history,
while the first one stays where it is.
"""

from __future__ import annotations

from shardmerge.proto import errors
from shardmerge.worker.core.mysql.connection import Session, server_info
from shardmerge.worker.relay.fetch.server_id import server_of
from shardmerge.worker.target.records import subtask_record


def check_target_server(
    target: Session, meta_schema: str, task: str, source: str, *, before: str, host: str, port: int
) -> str:
    """Return the server of this session. ``before``: the server that has answered the run before, "": none.

    Raises TARGET_WITHOUT_RECORDS, and ``pymysql.MySQLError``.
    """
    now = server_of(server_info(target))
    if before not in ("", now) and not subtask_record.exists(target, meta_schema, task, source):
        raise errors.replicate.TARGET_WITHOUT_RECORDS(
            task=task, source=source, host=host, port=port, schema=meta_schema, before=before, now=now
        )
    return now
