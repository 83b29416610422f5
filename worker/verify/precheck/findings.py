"""Names the items of the pre-check, runs them and reports their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pymysql

from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.listed_names import listed
from shardmerge.worker.core.mysql.connection import Session, errno_of, rows, text_of
from shardmerge.worker.core.mysql.server_errors import ErrorKind, kind_of, reason_of

SHOWN_TABLES = 10

READ_SECONDS = 120
"""How long one query of a check may take."""

DESCRIPTIONS = {
    "connection": "the source can be reached and logged in to",
    "version": "the source's version is supported",
    "server_id": "the source has a server id, and another one than the relay's",
    "binlog_enable": "the source writes a binary log",
    "binlog_format": "binlog_format is ROW",
    "binlog_row_image": "row events hold every column",
    "binlog_db": "no filter keeps routed schemas out of the binary log",
    "binlog_retention": "the source keeps its binary logs for longer than the copy takes",
    "gtid_gaps": "the source's GTID set and the start's have no holes",
    "meta_position": "the start position is still in the binary log",
    "replication_privilege": "the source's user may read the binary log",
    "dump_privilege": "the source's user may read the tables",
    "conn_number": "source and target allow the connections that the task opens",
    "online_ddl": "no online schema change is in progress",
    "table_schema": "the tables can be merged",
    "references": "columns that refer to mapped columns have the same mapping",
    "primary_key": "every table has a primary or unique NOT NULL key",
    "auto_increment_ID": "ids fit their mapping and their column, and counters do not collide",
    "duplicate_keys": "no two shard tables of a target have rows of the same key",
    "extracted_columns": "columns that a route extracts from names are part of the target's keys where these need them",
    "filter_rules": "filters find their tables, and let no shard table's changes meet another's rows",
    "target_connection": "the target can be reached and logged in to, and a session is one connection of it",
    "downstream_version": "the target's version is supported",
    "target_privilege": "the target's user may do what the task does",
    "schema_of_shard_tables": "target tables hold their shard tables",
    "target_indexes": "existing empty target tables are loaded without their secondary indexes",
    "downstream_table_empty": "target tables hold no rows but the task's own",
    "triggers": "no trigger at the target runs for replicated rows",
    "collation": "keys that are different at a source are different at the target",
    "sql_mode": "statements mean the same at source and target",
    "free_space": "the target has room for the tables",
    "local_infile": "the target takes rows in the form in which they are sent",
    "empty_region": "TiDB has few empty regions",
    "region_distribution": "TiDB's regions are spread evenly",
    "downstream_mutex_features": "TiDB runs no PITR and no CDC during a physical import",
    "clock_skew": "the clocks of source, target, worker and master agree",
    "spark": "the worker's Spark has slots for lanes and chunk readers",
    "relay_disk": "the worker has room for the relay log",
}
"""Every item by its name, which is DM's name if DM has the item."""

NOT_APPLICABLE = {
    "local_infile": "rows are sent as INSERT statements, never by LOAD DATA LOCAL",
    "empty_region": "it concerns TiDB's physical import; rows are written here by SQL alone",
    "region_distribution": "it concerns TiDB's physical import; rows are written here by SQL alone",
    "downstream_mutex_features": "it concerns TiDB's physical import; rows are written here by SQL alone",
}
"""Items that do not apply to this product: they pass with this reason."""

EVERY_ITEM = "all"
"""In `ignore-checking-items`: run none."""


def passed(item: str, source: str, found: str = "") -> pb.CheckResult:
    """``found``: details for the user."""
    desc = f"{DESCRIPTIONS[item]}: {found}" if found else DESCRIPTIONS[item]
    return pb.CheckResult(name=item, desc=desc, state=pb.CHECK_STATE_PASS, source=source)


def not_applicable(item: str, source: str) -> pb.CheckResult:
    """The result of an item of NOT_APPLICABLE."""
    desc = f"does not apply here: {NOT_APPLICABLE[item]}"
    return pb.CheckResult(name=item, desc=desc, state=pb.CHECK_STATE_PASS, source=source)


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
    """Runs items one after the other; every item runs, whatever the result of those before it.

    An item yields its findings; one that yields nothing has passed. An item that a server error ended is reported as
    failed: an item never passes because its query failed. ``of_task``: a task file can leave items out.
    """

    source: str
    ignored: frozenset[str]
    of_task: bool = True
    results: list[pb.CheckResult] = field(default_factory=list[pb.CheckResult])

    @staticmethod
    def of(source: str, ignore: Iterable[str], *, of_task: bool = True) -> Checklist:
        return Checklist(source, frozenset(ignore), of_task)

    def wants(self, item: str) -> bool:
        return EVERY_ITEM not in self.ignored and item not in self.ignored

    def run(self, item: str, find: Finder, *, privilege_of: str = "") -> None:
        """``privilege_of``: the item that reports the privilege that ``find`` needs: if it is missing, this item only
        warns that it could not query."""
        if not self.wants(item):
            return
        found: list[pb.CheckResult] = []
        try:
            found.extend(find())
        except pymysql.MySQLError as error:
            if privilege_of and kind_of(errno_of(error)) is ErrorKind.PRIVILEGE:
                reason = f"{reason_of(error)} (errno {errno_of(error)})"
                found.append(warned(item, self.source, _not_permitted(self.source, reason, privilege_of)))
            else:
                found.append(failed(item, self.source, query_failed(self.source, error, of_task=self.of_task)))
        except ShardmergeError as error:
            if privilege_of and error.spec is errors.relay.PRIVILEGE_MISSING:
                found.append(warned(item, self.source, _not_permitted(self.source, str(error), privilege_of)))
            else:
                reason, way_out = str(error), error.workaround
                found.append(failed(item, self.source, errors.check.RULES(reason=reason, way_out=way_out)))
        except OSError as error:  # of this machine's disk
            reason, way_out = str(error), "See to the worker's disk."
            broken_here = errors.check.CHECK_BROKEN(server="the worker", reason=reason, way_out=way_out)
            found.append(failed(item, self.source, broken_here))
        self.results.extend(found or [passed(item, self.source)])


def _not_permitted(source: str, reason: str, item: str) -> ShardmergeError:
    server = "target" if item == "target_privilege" else f"source {source}"
    return errors.check.CHECK_BROKEN(server=server, reason=reason, way_out=f"Grant what item {item} names.")


def what_to_correct(error: pymysql.MySQLError, otherwise: str) -> str:
    """What an operator does about a query that a server refused. ``otherwise``: the end of the sentence, where the
    server is the right one."""
    match kind_of(errno_of(error)):
        case ErrorKind.PRIVILEGE:
            return f"Grant the privilege that the server's message names{otherwise}"
        case ErrorKind.STORAGE:
            return f"Make space at the server that has none{otherwise}"
        case ErrorKind.WRONG_SERVER:
            return errors.worker.ANSWER_REFUSED.workaround
        case _:
            return f"Correct what the server's message names, at the source or at the target{otherwise}"


def query_failed(source: str, error: pymysql.MySQLError, *, of_task: bool = True) -> ShardmergeError:
    """The error of a check whose query the server refused. ``of_task``: a task file can leave the item out."""
    way_out = what_to_correct(error, ", or skip the item with `ignore-checking-items`." if of_task else ".")
    return errors.check.CHECK_BROKEN(
        server=f"source {source}",
        reason=f"{reason_of(error)} (errno {errno_of(error)})",
        way_out=way_out,
    )


def variable(session: Session, name: str) -> str | None:
    """A global variable's value; None if this server has none of that name."""
    found = rows(session, "SHOW GLOBAL VARIABLES LIKE %s", (name.replace("_", "\\_"),))
    return text_of(found[0][1]) if found else None


def abbreviated(names: Sequence[str]) -> str:
    """A list for a message: the first few names and how many more."""
    return listed(names, SHOWN_TABLES)
