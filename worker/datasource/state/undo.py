"""The state of a source's tables at the position of a DataFrame, computed from what a later SELECT read.

A SELECT that starts after the position sees, for each key, the row at the position or a later one. The binlog from the
position to an end that was read after the SELECT has every change that the SELECT may have seen. So a key without a
change there has at the position the row that the SELECT saw; and a key with changes has at the position the row before
its first change, or none if that change is an INSERT: what the SELECT saw does not matter. This needs the rows before
the change (binlog_row_image=FULL). An UPDATE of the key counts as a DELETE and an INSERT. Keys are compared as literal
bytes, as in worker/snapshot/reader/fixup.py.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.core import inflation
from shardmerge.worker.core.mysql.endpoint import Endpoint
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.row_change import Literals, RowChange
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.datasource.group_reader import Described, EventBlock, GroupReader, Stated, why_gone
from shardmerge.worker.datasource.plan.read_plan import ReadOptions, SourcePlan
from shardmerge.worker.ddl.sql.statement_scope import classify, touches
from shardmerge.worker.relay.log.xa_tracker import PrepareUnknown, XaTracker
from shardmerge.worker.snapshot.reader.fixup import key_of

_SHOWN_CHARACTERS = 200
_OBJECT_BYTES = sys.getsizeof(b"") + 8
"""Of a literal, in addition to its bytes: the object, and its place in the row."""

Before = dict[Literals, Literals]
"""By key: the row at the position, () for none. Only keys that were changed after it."""


def note_first(first: Before, plan: TablePlan, change: RowChange) -> int:
    """Note a change in ``first``; returns the bytes that it needs."""
    size = 0
    for image, before in ((change.before, change.before), (change.after, ())):
        if image:
            key = key_of(plan, image)
            if key not in first:
                first[key] = before
                size += sum(map(len, before)) + sum(map(len, key)) + _OBJECT_BYTES * (len(before) + len(key) + 4)
    return size


class Undo:
    """The rows of one source's tables that were changed after its position. One per process and source, because each
    process reads the binlog once. After an error it must not be used any more.

    The binlog is that of the source, on a connection of its own for each part; the relay log is not involved.
    """

    def __init__(self, plan: SourcePlan, options: ReadOptions, endpoint: Endpoint) -> None:
        self._plan, self._options, self._endpoint = plan, options, endpoint
        inflation.use(options.most_inflated)
        self._by_name = {(one.plan.table.schema, one.plan.table.name): one.plan for one in plan.tables}
        self._schemas = frozenset(schema.lower() for schema, _ in self._by_name)
        self._first: tuple[Before, ...] = tuple({} for _ in plan.tables)
        self._size = 0
        # How far the binlog has been read: a position, and when its file was made; the transactions prepared before it.
        self._read_to, self._made = plan.position, plan.made
        self._prepared = XaTracker({})

    def before(self, table: int, end: SourcePosition) -> Before:
        """The rows of a table that were changed after the position, up to ``end`` at least. Raises the errors of
        proto/errors/read.py, of the dump and of the decoder."""
        position = self._plan.position
        if not end.same_server(position):
            raise self._gone("another server answers at the source's address")
        if not end.reaches(position):
            raise self._gone(f"the source's binlog ends at {end}")
        if not self._read_to.reaches(end):
            self._read(end)
        return self._first[table]

    def _read(self, end: SourcePosition) -> None:
        """Read the next part of the binlog, up to an end of a group of the same server."""
        source = self._plan.source.source
        decoder = BlockDecoder(self._resolve, source_keys=True, source=source)
        reader = GroupReader(source, self._endpoint, self._read_to, self._made, waits=True, xa=self._prepared)
        try:
            for item in reader.items(end=end):
                match item:
                    case Described(event):
                        decoder.open(event)
                    case Stated():
                        self._check(item)
                    case EventBlock(events):
                        self._note(decoder.decode(events))
        except PrepareUnknown as unknown:
            raise self._unknown_xa(unknown.position) from unknown
        except ShardmergeError as error:
            if error.spec is errors.decode.PREPARED_ROWS:
                raise self._unknown_xa(reader.end) from error
            reason = why_gone(error)
            if reason is not None:
                raise self._gone(reason) from error
            raise
        self._read_to, self._made = replace(end, file=reader.end.file, pos=reader.end.pos), reader.made

    def _note(self, changes: list[RowChange]) -> None:
        for change in changes:
            self._size += note_first(self._first[change.plan.shard], change.plan, change)
        if self._size > self._options.most_undo:
            raise errors.read.TOO_MANY_CHANGES(
                source=self._plan.source.source, position=self._plan.position, limit=self._options.most_undo >> 20
            )

    def _resolve(self, schema: str, table: str) -> TablePlan | None:
        return self._by_name.get((schema, table))

    def _check(self, stated: Stated) -> None:
        """Raises ``read.STATEMENT`` for a statement that may change the tables, or which tables there are."""
        statement = stated.statement
        scope = classify(statement.text, statement.schema, statement.sql_mode)
        if touches(scope, self._is_wanted, self._may_hold):
            raise errors.read.STATEMENT(
                source=self._plan.source.source,
                position=self._plan.position,
                at=stated.end,
                statement=" ".join(statement.text.split())[:_SHOWN_CHARACTERS],
            )

    def _is_wanted(self, schema: str, table: str) -> bool:
        """Also in lower case: with lower_case_table_names=1 statements have the names as typed, tables do not."""
        names = {(schema, table), (schema.lower(), table.lower())}
        return any(self._plan.source.sends_to(self._options.target, *name) for name in names)

    def _may_hold(self, schema: str) -> bool:
        """Whether a table of the DataFrame is in a schema. With a fixed position the tables were listed after it: DROP
        DATABASE may have removed some that are not known here."""
        if schema.lower() in self._schemas:
            return True
        source, target = self._plan.source, self._options.target
        return source.fixed is not None and any(source.may_send(target, one) for one in {schema, schema.lower()})

    def _unknown_xa(self, at: SourcePosition) -> ShardmergeError:
        return errors.read.XA(source=self._plan.source.source, position=self._plan.position, at=at)

    def _gone(self, reason: str) -> ShardmergeError:
        return errors.read.BINLOG_GONE(source=self._plan.source.source, position=self._plan.position, reason=reason)
