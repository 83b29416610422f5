"""A shard table's ALTER under ``shard-mode: optimistic``: the target becomes the schema join of its shard tables.

    lock of the target ── all shard tables' recorded structures ── join (pure) ── clauses at the target ── record

The lock is held until the structure after the statement is recorded, so two sources never join from the same records.
Where there is no join, the table is parked as under ``pessimistic``. Meanwhile other tables of the target do not wait
for it: their joins consider its structure before and after the statement at which it is parked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from shardmerge.proto import errors
from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.mysql.show_create import CreateStatement, read_create_statement
from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.sql.table_text import Index
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.execute.added_keys import target_keys, with_extracted_keys
from shardmerge.worker.ddl.execute.run_once import join_subject
from shardmerge.worker.ddl.execute.statement_context import StatementContext
from shardmerge.worker.ddl.execute.structure_check import check_mergeable
from shardmerge.worker.ddl.schema_join.join import SchemaJoin, join
from shardmerge.worker.ddl.schema_join.model import NotJoinable, ShardSchema
from shardmerge.worker.ddl.sql.statement import AlterTable
from shardmerge.worker.ddl.sql.table_definition import TableDefinition, parse_table_definition
from shardmerge.worker.ddl.sql.target_statement import Changing, time_dependent_columns
from shardmerge.worker.ddl.structure.parked_definitions import ParkedDefinitions
from shardmerge.worker.ddl.structure.schema_tracker import SchemaTracker, Tracked
from shardmerge.worker.ddl.structure.structure_digest import CanonicalCreates
from shardmerge.worker.target.members.member_cache import TaskMembers
from shardmerge.worker.target.records import divided_statements
from shardmerge.worker.target.records import dropped_columns as dropped
from shardmerge.worker.target.records.dropped_columns import Member
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.statement_session import StatementSession
from shardmerge.worker.target.tables.extracted_keys import NO_EXTENSION, KeyExtension

_STRICT_TRANS_TABLES = 1 << 21
_STRICT_ALL_TABLES = 1 << 22

STRICT = StatementSession(_STRICT_TRANS_TABLES | _STRICT_ALL_TABLES, "DEFAULT", "", True)
"""The session for the join's clauses: values that do not fit are refused, never changed. Bits: MySQL
sql/system_variables.h."""


@dataclass(frozen=True, slots=True)
class TargetJoin:
    """``clauses``: of one ALTER TABLE of the target, () for none. ``dropped``: the new dropped columns of the shard
    tables whose record changes."""

    clauses: tuple[str, ...]
    dropped: Mapping[Member, frozenset[str]]


@dataclass(frozen=True, slots=True)
class ColumnMoves:
    """What a statement does to columns that the structures around it do not show; see
    :func:`shardmerge.worker.ddl.schema_join.join.join`."""

    renamed: Mapping[str, str]
    replaced: frozenset[str]
    strict: bool


def join_target(
    context: StatementContext,
    plan: TablePlan,
    creation: CreateStatement,
    tracked: Tracked,
    tracker: SchemaTracker,
    printed: CanonicalCreates,
    parked_definitions: ParkedDefinitions,
    moves: ColumnMoves | None = None,
    *,
    is_mariadb: bool,
) -> TargetJoin | NotJoinable:
    """The target's change for the statement of ``context``, which changed ``plan``'s table to ``tracked``. Under the
    target's lock. ``moves``: of several statements, of which the last is that of ``context``; None: it is one. Raises
    what :class:`SchemaTracker` raises, the rules' errors and ``pymysql.MySQLError``."""
    session, (schema, task, source) = context.session, context.who
    found = context.run_context.members.read(session)
    check_mergeable_in_task(context, found, plan)
    check_values_of_time(context, found, plan, is_mariadb=is_mariadb)
    members = _members(found, context, plan)
    parked = [each for each in parked_of(found, plan.target) if (each[0].source, each[0].shard) != (source, plan.shard)]
    # A statement that was begun before another table was parked is finished: the target may have it already.
    if parked and divided_statements.is_begun(session, context.who, join_subject(plan.target)):
        parked = []
    coming: list[ShardSchema] = []
    for other, known, item in parked:
        definition = parked_definitions.find(other, known, item, tracker, task)
        if definition is None:
            return blocked_by(other)
        coming.append(ShardSchema(shard_label(other), definition, frozenset()))
    gone = dropped.read(session, schema, task)
    target = parse_table_definition(read_create_statement(session, *plan.target.names))
    shards = other_shards(found, members, gone, tracker, printed, target)
    if isinstance(shards, NotJoinable):
        return shards
    own = (source, plan.shard)
    before = ShardSchema(
        shard_label(plan),
        _as_written(printed.definition(plan.table, creation, tracker), plan.table, target),
        gone.get(own, frozenset()),
    )
    ddl = context.ddl
    assert isinstance(ddl, Changing)  # noqa: S101 - for the type checker: nothing else alters
    if moves is None:
        moves = moves_of_statement(ddl, strict=is_strict(context.sql_mode, plan.table))
    after = parse_table_definition(tracked.creation)
    return join_after(target, shards, own, before, after, moves, coming, target_keys(session, plan).extension)


def _as_written(definition: TableDefinition, table: Table, target: TableDefinition) -> TableDefinition:
    """The structure of a shard table as the target has its values (``written_as`` of a column). The same object where
    nothing differs."""
    numbers = {column.name.lower() for column in table.columns if column.written_as}
    if not numbers:
        return definition
    types = {each.key: each.type for each in target.columns if each.key in numbers}
    columns = (replace(each, type=types.get(each.key, each.type)) for each in definition.columns)
    return replace(definition, columns=tuple(columns))


def parked_of(found: TaskMembers, target: TargetTable) -> list[tuple[TablePlan, CreateStatement | None, Parked]]:
    """The shard tables of a target that are parked and not released, with their recorded CREATE TABLE."""
    return [
        (other, each.creations.get(number), item)
        for each in found.sources.values()
        for number, item in each.parked.items()
        if not item.released and (other := each.plans.get(number)) is not None and other.target == target
    ]


def other_shards(
    found: TaskMembers,
    members: Mapping[Member, TablePlan],
    gone: Mapping[Member, frozenset[str]],
    tracker: SchemaTracker,
    printed: CanonicalCreates,
    target: TableDefinition,
) -> dict[Member, ShardSchema] | NotJoinable:
    """The recorded structures of ``members``, whose target is ``target``. ``gone``: the dropped columns. Raises what
    :class:`SchemaTracker` raises."""
    shards: dict[Member, ShardSchema] = {}
    for member, other in members.items():
        source = found.sources[other.source]
        known, item = source.creations.get(other.shard), source.parked.get(other.shard)
        if known is None:
            return unrecorded(other)
        shape = _as_written(printed.definition(other.table, known, tracker), other.table, target)
        one_lane = other.one_lane or (item is not None and not item.released)
        shards[member] = ShardSchema(shard_label(other), shape, gone.get(member, frozenset()), one_lane)
    return shards


def check_mergeable_in_task(context: StatementContext, found: TaskMembers, plan: TablePlan) -> None:
    """See :func:`check_mergeable`, with the shard tables of all sources. Raises TRANSFORMED_TABLE."""
    merged = (other for members in found.sources.values() for other in members.plans.values())
    check_mergeable(plan, merged, context.refusal)


def check_values_of_time(context: StatementContext, found: TaskMembers, plan: TablePlan, *, is_mariadb: bool) -> None:
    """Check that the statement does not give rows its own time: the shard tables of one target run it at different
    times, and the target runs it once. ``is_mariadb``: the source is. Raises VALUES_OF_TIME."""
    if context.ddl is None:
        return
    explicit = context.source_session.explicit_timestamp
    columns = time_dependent_columns(context.statement, context.ddl, plan.table, explicit, is_mariadb=is_mariadb)
    if not columns:
        return
    shards = sum(other.target == plan.target for members in found.sources.values() for other in members.plans.values())
    if shards > 1:
        raise context.refusal(
            errors.ddl.VALUES_OF_TIME,
            table=plan.table.full_name,
            column=", ".join(columns),
            shards=shards,
            target=plan.target.quoted,
        )


def compute_join(
    target: TableDefinition,
    others: Mapping[Member, ShardSchema],
    own: Member,
    before: ShardSchema,
    after: TableDefinition,
    ddl: Changing,
    *,
    strict: bool,
    coming: Iterable[ShardSchema] = (),
    extension: KeyExtension = NO_EXTENSION,
) -> TargetJoin | NotJoinable:
    """The change of ``target`` for ``ddl``, which changed the shard table ``own`` to ``after``. Pure.

    ``others``: every other shard table of the target. ``strict``, ``coming``: see
    :func:`shardmerge.worker.ddl.schema_join.join.join`. ``extension``: of the target's unique keys.
    """
    return join_after(target, others, own, before, after, moves_of_statement(ddl, strict=strict), coming, extension)


def moves_of_statement(ddl: Changing, *, strict: bool) -> ColumnMoves:
    """See :class:`ColumnMoves`."""
    return ColumnMoves(renamed_of(ddl), replaced_of(ddl), strict)


def join_after(
    target: TableDefinition,
    others: Mapping[Member, ShardSchema],
    own: Member,
    before: ShardSchema,
    after: TableDefinition,
    moves: ColumnMoves,
    coming: Iterable[ShardSchema] = (),
    extension: KeyExtension = NO_EXTENSION,
) -> TargetJoin | NotJoinable:
    """As :func:`compute_join`, for one or several statements."""
    coming, completed = tuple(coming), set[str]()
    for index in after.indexes:
        known = before.definition.index(index.key)
        if index.unique and (known is None or not known.unique):
            refused = _refuse_unique(index, others.values(), coming)
            if refused is not None:
                return refused
            completed.add(index.key)

    def at_target(shard: ShardSchema) -> ShardSchema:
        return replace(shard, definition=with_extracted_keys(shard.definition, extension))

    answer = join(
        target,
        [at_target(shard) for shard in distinct_schemas(others.values())],
        at_target(before),
        with_extracted_keys(after, extension),
        strict=moves.strict,
        renamed=moves.renamed,
        replaced=moves.replaced,
        coming=[at_target(shard) for shard in distinct_schemas(coming)],
        completed=completed,
    )
    match answer:
        case NotJoinable():
            return answer
        case SchemaJoin():
            left = {member: shard.dropped - answer.gone for member, shard in others.items() if shard.dropped}
            changed = {member: columns for member, columns in left.items() if columns != others[member].dropped}
            return TargetJoin(answer.clauses, {**changed, own: answer.dropped})


def _refuse_unique(index: Index, others: Collection[ShardSchema], coming: Iterable[ShardSchema]) -> NotJoinable | None:
    """Why the target cannot get a further unique index at once; None: it can, because the other shard tables have it
    or are parked at statements after which they have it, and one of them has it.

    With a further unique key at the target, the order of changes to different rows matters, so one lane must apply all
    changes of its shard tables (TargetFacts.one_lane). A table whose statement adds the index moves to one lane there,
    a parked one when it returns; a table that has the index already stays in the lanes that it has. While one has it,
    no lock may add it: that table may drop it at the same time."""
    having = [shard for shard in others if (found := shard.definition.index(index.key)) and found.unique]
    reason = f"unique index {quote_name(index.name)} spans the rows of all shard tables"
    if not having:
        return NotJoinable(reason, subject=index.name, waits=True)
    apart = next((shard for shard in having if not shard.one_lane), None)
    if apart is not None:
        why = f"{reason}, and {apart.name} has it already, with rows that several lanes apply"
        return NotJoinable(why, subject=index.name, other=apart.name)
    complete = {shard.name for shard in (*having, *coming) if _has_same(shard, index)}
    lacking = next((shard for shard in others if shard.name not in complete), None)
    if lacking is None:
        return None
    why = f"{reason}: {having[0].name} has one already, and {lacking.name} lacks it"
    return NotJoinable(why, subject=index.name, other=having[0].name)


def _has_same(shard: ShardSchema, index: Index) -> bool:
    found = shard.definition.index(index.key)
    return found is not None and found.same == index.same


def blocked_by(waiting: TablePlan) -> NotJoinable:
    """A shard table of the same target is parked, and its structure after its statement cannot be computed."""
    return NotJoinable(f"shard table {shard_label(waiting)} is parked at a sharding DDL of the same target", waits=True)


def unrecorded(other: TablePlan) -> NotJoinable:
    """A shard table of an earlier version, for which only columns are recorded."""
    return NotJoinable(f"the structure of shard table {shard_label(other)} is not recorded", waits=True)


def distinct_schemas(shards: Iterable[ShardSchema]) -> tuple[ShardSchema, ...]:
    """One shard table of each structure, the first by name: most of a thousand shard tables are equal, and a join
    depends on which structures there are. Pure."""
    first: dict[tuple[int, frozenset[str]], ShardSchema] = {}
    for shard in shards:
        # Equal structures are one object: see CanonicalCreates.definition.
        known = first.setdefault((id(shard.definition), shard.dropped), shard)
        if shard.name < known.name:
            first[id(shard.definition), shard.dropped] = shard
    return tuple(first.values())


def _members(found: TaskMembers, context: StatementContext, plan: TablePlan) -> dict[Member, TablePlan]:
    """The task's other shard tables of the target."""
    source = context.who.source
    mine = found.sources.get(source)
    removed = context.changes.removed
    here = {} if mine is None else {at: other for at, other in mine.plans.items() if at not in removed}
    here |= context.plans
    others = (each.plans.values() for name, each in found.sources.items() if name != source)
    return {
        (other.source, other.shard): other
        for other in chain(here.values(), *others)
        if other.target == plan.target and (other.source, other.shard) != (plan.source, plan.shard)
    }


def shard_label(plan: TablePlan) -> str:
    """A shard table's name for people."""
    return f"{plan.table.full_name} of {plan.source}"


def is_strict(sql_mode: int, table: Table) -> bool:
    """Whether the source refused values that do not fit (MySQL Reference Manual, "Server SQL Modes")."""
    if sql_mode & _STRICT_ALL_TABLES:
        return True
    return bool(sql_mode & _STRICT_TRANS_TABLES) and table.engine.lower() == "innodb"


def renamed_of(ddl: Changing) -> dict[str, str]:
    """Old column names by new ones, in lower case, for columns whose name changes."""
    if not isinstance(ddl, AlterTable):
        return {}
    pairs = (
        (clause.new_name.lower(), clause.columns[0].lower())
        for clause in ddl.clauses
        if clause.kind in (ClauseKind.RENAME_COLUMN, ClauseKind.CHANGE_COLUMN)
    )
    return {new: old for new, old in pairs if new != old}


def replaced_of(ddl: Changing) -> frozenset[str]:
    """Lower-case names of columns that the statement both drops and adds."""
    if not isinstance(ddl, AlterTable):
        return frozenset()
    names = {
        kind: {column.lower() for clause in ddl.clauses if clause.kind is kind for column in clause.columns}
        for kind in (ClauseKind.DROP_COLUMN, ClauseKind.ADD_COLUMN)
    }
    return frozenset(names[ClauseKind.DROP_COLUMN] & names[ClauseKind.ADD_COLUMN])
