"""Compares the structure that a statement gives to a shard table with the one that the table has at the source.

A statement runs at the target in the session that the binlog describes. If something that the binlog does not describe
has given it another meaning at the source, the source shows that, unless a later statement has changed the table since.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field

from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import ServerInfo, Session, current_position, server_info
from shardmerge.worker.core.mysql.create_table import retyped_item
from shardmerge.worker.core.mysql.information_schema import read_table
from shardmerge.worker.core.mysql.show_create import read_shard_statements
from shardmerge.worker.core.mysql.target_dialect import ServerKind, TargetDialect
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.sql.table_text import UnreadableCreateTable
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table import Column
from shardmerge.worker.ddl.structure.schema_tracker import Tracked
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.unit.run_context import RunContext

log = get_logger()

_LOCATE_SECONDS = 10.0
_MOST_KNOWN = 1000
_RETRY_SECONDS = 60.0
"""A source that does not answer is not asked for each of many statements."""
_DROPS_SCHEMA = re.compile(r"\bDROP\b.*\b(DATABASE|SCHEMA)\b", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Contradiction:
    """``present``: the table as the source has it; ``here``, ``there``: the first difference, computed and present."""

    present: Tracked
    here: str
    there: str


@dataclass(slots=True)
class SourceStructures:
    """Of one stream, for one thread.

    The shard tables of a merge are mostly equal, and get equal statements, of which one asks the source."""

    # For each structure: None if the source has confirmed it, else the offset up to which statements have no answer,
    # because a later one has changed the table.
    _known: dict[tuple[str, str], RelayOffset | None] = field(default_factory=dict[tuple[str, str], RelayOffset | None])
    _ask_after: float = 0.0

    def contradiction(
        self, context: RunContext, statement: Statement, tracked: Tracked, target: TargetDialect, stop: StopSignal
    ) -> Contradiction | None:
        """What contradicts ``tracked``, the table after ``statement``. None: nothing, or it is not known, because the
        table has been changed since or the source does not answer."""
        key = (tracked.creation.body, tracked.creation.collation)
        until = self._known.get(key)
        if key in self._known and (until is None or statement.offset <= until):
            return None
        if time.monotonic() < self._ask_after:
            return None
        schema, name = tracked.table.schema, tracked.table.name
        try:
            with context.at_source(stop) as session:
                present = present_table(session, (schema, name), context.source.source_id)
                if present is None:
                    return None
                info = server_info(session)
                end = current_position(session, info, gtid=True)
            found = difference(tracked, present, like_target=_is_like(info, target))
            head = None if found is None else context.relay.locate(end, _LOCATE_SECONDS, stop, down=True)
            if found is not None and head is not None and not _is_changed(context, statement, name, head):
                return Contradiction(present, *found)
        except (ShardmergeError, UnreadableCreateTable) as error:
            log.info("a structure was not compared with the source's", table=f"{schema}.{name}", reason=f"{error}")
            self._ask_after = time.monotonic() + _RETRY_SECONDS
            return None
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[key] = head
        return None


def present_table(session: Session, name: TableName, source: str) -> Tracked | None:
    """The table as the source has it now, None: it has none of this name. Raises as :func:`read_table`, and
    UnreadableCreateTable."""
    table = read_table(session, *name, source=source)
    return None if table is None else Tracked(table.structure, *read_shard_statements(session, [name]))


def difference(computed: Tracked, present: Tracked, *, like_target: bool) -> tuple[str, str] | None:
    """The first difference of the columns. ``like_target``: the source's server describes columns as the target's,
    which has computed the structure, does: then also collations, defaults and the table's default character set are
    compared. MySQL logs a CREATE TABLE … SELECT under sql_mode ANSI without the table's options. Pure.

    Raises UnreadableCreateTable."""
    ours, theirs = computed.table, present.table
    names = [[column.name for column in table.columns] for table in (ours, theirs)]
    if names[0] != names[1]:
        return f"the columns {', '.join(names[0])}", f"the columns {', '.join(names[1])}"
    for mine, other in zip(ours.columns, theirs.columns, strict=True):
        if mine.written_as:
            continue  # the target keeps another type for a while
        if mine.comparable(with_collation=like_target) != other.comparable(with_collation=like_target):
            return _described(mine), _described(other)
        if like_target:
            items = [_item(*each) for each in ((computed, mine), (present, other))]
            if items[0] != items[1]:
                return items[0], items[1]
    defaults = computed.creation.collation, present.creation.collation
    if like_target and _charset(defaults[0]) != _charset(defaults[1]):
        return f"DEFAULT COLLATE {defaults[0]}", f"DEFAULT COLLATE {defaults[1]}"
    return None


def _charset(collation: str) -> str:
    charset, _, _ = collation.partition("_")
    return "utf8mb3" if charset == "utf8" else charset


def _item(tracked: Tracked, column: Column) -> str:
    """The column's definition without its collation, which MySQL prints or leaves out for equal columns."""
    return retyped_item(tracked.creation.text, column.name, column.type_text, column.type_text)


def _described(column: Column) -> str:
    collation = f" COLLATE {column.collation}" if column.collation else ""
    return f"`{column.name}` {column.type_text}{collation}{'' if column.nullable else ' NOT NULL'}"


def _is_like(source: ServerInfo, target: TargetDialect) -> bool:
    """Whether both describe equal columns with the same text: releases of one version may differ (MySQL 8.0.19)."""
    return target.kind is not ServerKind.TIDB and source.dialect == target


def _is_changed(context: RunContext, statement: Statement, name: str, head: RelayOffset) -> bool:
    """Whether a statement between ``statement`` and ``head`` may have changed the table."""
    for later in context.relay.statements_from(statement.group_end):
        if later.offset > head:
            return False
        if name.lower() in later.text.lower() or _DROPS_SCHEMA.search(later.text):
            return True
    return False
