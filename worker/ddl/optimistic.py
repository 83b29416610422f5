"""A shard table's ALTER under ``shard-mode: optimistic``: the target becomes the join of its shard tables at once.

    lock of the target ── all shard tables' recorded structures ── join (pure) ── clauses at the target ── record

The lock is held until the structure behind the statement is recorded, so two sources never join from the same records.
Where there is no join, or a table of the same target waits already, the table waits as under ``pessimistic``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from worker.connection import quote_name
from worker.ddl import dropped, records
from worker.ddl.clause import ClauseKind
from worker.ddl.creation import Creation, read_creation
from worker.ddl.described import Index, Shape, described
from worker.ddl.digests import Printed
from worker.ddl.dropped import Member
from worker.ddl.everyone import everyone
from worker.ddl.execute import subject_of
from worker.ddl.joined import Joined, join
from worker.ddl.session import StatementSession
from worker.ddl.shape import Changing
from worker.ddl.shards import NotJoinable, Shard
from worker.ddl.statement import AlterTable
from worker.ddl.tracker import Tracked, Tracker
from worker.ddl.work import Work
from worker.plan import TablePlan, TargetTable
from worker.table import Table

_STRICT_TRANS_TABLES = 1 << 21
_STRICT_ALL_TABLES = 1 << 22

STRICT = StatementSession(_STRICT_TRANS_TABLES | _STRICT_ALL_TABLES, "DEFAULT", "", None)
"""In which the join's clauses run: what does not fit is refused, never changed. Bits: MySQL sql/system_variables.h."""


@dataclass(frozen=True, slots=True)
class Join:
    """``clauses``: of one ALTER TABLE of the target, () for none. ``dropped``: of the shard tables whose record of
    dropped columns changes."""

    clauses: tuple[str, ...]
    dropped: Mapping[Member, frozenset[str]]


def join_subject(target: TargetTable) -> str:
    """The name of the target's lock: another one than that of its statements."""
    return f"j{subject_of([target])[1:]}"


def join_target(
    work: Work, plan: TablePlan, creation: Creation, tracked: Tracked, tracker: Tracker, printed: Printed
) -> Join | NotJoinable:
    """What ``work``'s statement, which made ``tracked`` of ``plan``'s table, makes of the target. Under the target's
    lock. Raises what :class:`Tracker` raises, the rules' errors and ``pymysql.MySQLError``."""
    session, (schema, task, source) = work.session, work.who
    found = everyone(session, schema, task, source)
    members = _members(found.mine, found.others, work, plan)
    waiting = [other for other in found.waiting if other.target == plan.target]
    # What was begun before the other came to wait is brought to its end: the target may have it already.
    if waiting and records.read_begun(session, schema, task, source, join_subject(plan.target)) is None:
        return blocked_by(waiting[0])
    gone = dropped.read(session, schema, task)
    shards: dict[Member, Shard] = {}
    creations: dict[str, Mapping[int, Creation]] = {}
    for member, other in members.items():
        known = creations.setdefault(other.source, records.read_creations(session, schema, task, other.source))
        if other.shard not in known:
            return unrecorded(other)
        shape = described(printed.creation(other.table, known[other.shard], tracker))
        shards[member] = Shard(name_of(other), shape, gone.get(member, frozenset()))
    own = (source, plan.shard)
    before = Shard(
        name_of(plan), described(printed.creation(plan.table, creation, tracker)), gone.get(own, frozenset())
    )
    ddl = work.ddl
    assert isinstance(ddl, Changing)  # noqa: S101 - for the type checker: nothing else alters
    return joined_target(
        described(read_creation(session, *plan.target.names)),
        shards,
        own,
        before,
        described(tracked.creation),
        ddl,
        strict=is_strict(work.sql_mode, plan.table),
    )


def joined_target(
    target: Shape,
    others: Mapping[Member, Shard],
    own: Member,
    before: Shard,
    after: Shape,
    ddl: Changing,
    *,
    strict: bool,
) -> Join | NotJoinable:
    """What ``ddl``, which made ``after`` of the shard table ``own``, makes of ``target``. Pure.

    ``others``: every other shard table of the target. ``strict``: see :func:`worker.ddl.joined.join`.
    """
    for index in after.indexes:
        known = before.shape.index(index.key)
        if index.unique and (known is None or not known.unique):
            return _unique_comes(index, others)
    answer = join(
        target,
        tuple(others.values()),
        before,
        after,
        strict=strict,
        renamed=renamed_of(ddl),
        replaced=replaced_of(ddl),
    )
    match answer:
        case NotJoinable():
            return answer
        case Joined():
            left = {member: shard.dropped - answer.gone for member, shard in others.items()}
            changed = {member: columns for member, columns in left.items() if columns != others[member].dropped}
            return Join(answer.clauses, {**changed, own: answer.dropped})


def _unique_comes(index: Index, others: Mapping[Member, Shard]) -> NotJoinable:
    """With a further unique key at the target the order of changes to different rows matters, so all changes of its
    shard tables must come by one lane (TargetFacts.one_lane). Those that wait get there when they come back; one that
    has the index already would go on in many."""
    having = [shard.name for shard in others.values() if (found := shard.shape.index(index.key)) and found.unique]
    name = quote_name(index.name)
    if not having:
        return NotJoinable(f"unique index {name} spans the rows of all shard tables", subject=index.name, waits=True)
    reason = f"unique index {name} spans the rows of all shard tables, and {having[0]} has it already"
    return NotJoinable(reason, subject=index.name, other=having[0])


def blocked_by(waiting: TablePlan) -> NotJoinable:
    """A shard table of the same target waits already: one at a time."""
    return NotJoinable(f"shard table {name_of(waiting)} waits before a sharding DDL of the same target", waits=True)


def unrecorded(other: TablePlan) -> NotJoinable:
    """A shard table of an earlier version, of which only columns are recorded."""
    return NotJoinable(f"the structure of shard table {name_of(other)} is not recorded", waits=True)


def _members(
    mine: Mapping[int, TablePlan], others: tuple[TablePlan, ...], work: Work, plan: TablePlan
) -> dict[Member, TablePlan]:
    """The task's other shard tables of the target."""
    here = {number: other for number, other in mine.items() if number not in work.passing.gone} | work.plans
    return {
        (other.source, other.shard): other
        for other in (*here.values(), *others)
        if other.target == plan.target and (other.source, other.shard) != (plan.source, plan.shard)
    }


def name_of(plan: TablePlan) -> str:
    """Of a shard table, for people."""
    return f"{plan.table.full_name} of {plan.source}"


def is_strict(sql_mode: int, table: Table) -> bool:
    """Whether the source refused values that do not fit (MySQL Reference Manual, "Server SQL Modes")."""
    if sql_mode & _STRICT_ALL_TABLES:
        return True
    return bool(sql_mode & _STRICT_TRANS_TABLES) and table.engine.lower() == "innodb"


def renamed_of(ddl: Changing) -> dict[str, str]:
    """Former names by new ones, in lower case, of the columns whose name changes."""
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
