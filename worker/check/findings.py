"""How checks are named, run and reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import pymysql

from proto import errors
from proto import worker_pb2 as pb
from proto.errors import ShardmergeError
from worker.connection import Session, errno_of, rows, text_of
from worker.trouble import reason_of

SHOWN_TABLES = 10

DESCRIPTIONS = {
    "connection": "the source can be reached and logged in to",
    "version": "the source's version is supported",
    "server_id": "the source has a server id, and another one than the relay's",
    "binlog_enable": "the source writes a binary log",
    "binlog_format": "binlog_format is ROW",
    "binlog_row_image": "row events hold every column",
    "binlog_db": "no filter keeps routed schemas out of the binary log",
    "replication_privilege": "the source's user may read the binary log",
    "dump_privilege": "the source's user may read the tables",
    "online_ddl": "no online schema change is under way",
    "table_schema": "the tables can be merged",
    "auto_increment_ID": "ids fit their mapping and do not collide",
    "meta_position": "the start position is still in the binary log",
    "target_connection": "the target can be reached and logged in to",
    "target_privilege": "the target's user may do what the task does",
    "schema_of_shard_tables": "target tables hold their shard tables",
}
"""Every item by its name: DM's name where DM has the item."""

EVERY_ITEM = "all"
"""In `ignore-checking-items`: run none."""


def passed(item: str, source: str) -> pb.CheckResult:
    return pb.CheckResult(name=item, desc=DESCRIPTIONS[item], state=pb.CHECK_STATE_PASS, source=source)


def failed(item: str, source: str, error: ShardmergeError) -> pb.CheckResult:
    return _result(item, source, error, pb.CHECK_STATE_FAIL)


def warned(item: str, source: str, error: ShardmergeError) -> pb.CheckResult:
    return _result(item, source, error, pb.CHECK_STATE_WARN)


def _result(item: str, source: str, error: ShardmergeError, state: pb.CheckState) -> pb.CheckResult:
    return pb.CheckResult(
        name=item,
        desc=DESCRIPTIONS[item],
        state=state,
        source=source,
        error_msg=error.message,
        instruction=error.workaround,
        code=error.code,
    )


Finder = Callable[[], Iterator[pb.CheckResult]]


@dataclass(slots=True)
class Checklist:
    """Runs items one after the other; every item runs, whatever became of those before it.

    An item yields what it has found; one that yields nothing has passed. One that a server's error ended
    is told as such: an item never passes because it could not look.
    """

    source: str
    ignored: frozenset[str]
    results: list[pb.CheckResult] = field(default_factory=list[pb.CheckResult])

    @staticmethod
    def of(source: str, ignore: Iterable[str]) -> Checklist:
        return Checklist(source, frozenset(ignore))

    def wants(self, item: str) -> bool:
        return EVERY_ITEM not in self.ignored and item not in self.ignored

    def run(self, item: str, find: Finder) -> None:
        if not self.wants(item):
            return
        found: list[pb.CheckResult] = []
        try:
            found.extend(find())
        except pymysql.MySQLError as error:
            found.append(failed(item, self.source, broken(self.source, error)))
        except ShardmergeError as error:
            reason, way_out = str(error), error.workaround
            found.append(failed(item, self.source, errors.check.RULES(reason=reason, way_out=way_out)))
        self.results.extend(found or [passed(item, self.source)])


def broken(source: str, error: pymysql.MySQLError) -> ShardmergeError:
    """A server refused a question of a check."""
    return errors.check.CHECK_BROKEN(
        server=f"source {source}",
        reason=f"{reason_of(error)} (errno {errno_of(error)})",
        way_out="Grant what the server's message names, or leave the item out with `ignore-checking-items`.",
    )


def variable(session: Session, name: str) -> str | None:
    """A global variable's value; None if this server has none of that name."""
    found = rows(session, "SHOW GLOBAL VARIABLES LIKE %s", (name.replace("_", "\\_"),))
    return text_of(found[0][1]) if found else None


def some(names: list[str]) -> str:
    """A list for a message: the first few names and how many more."""
    more = len(names) - SHOWN_TABLES
    return ", ".join(names[:SHOWN_TABLES]) + (f" and {more} more" if more > 0 else "")
