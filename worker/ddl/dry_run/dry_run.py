"""Computes the effect of a sharding DDL, one shard table after the other, on a copy of the records.

    records at the target ──▶ tables, targets (in memory) ── statement ──▶ tracker ──▶ Answer, and both after it

Nothing runs on a shard table or a target table: the statement runs only on the tracker
(worker/ddl/structure/schema_tracker.py) and on empty copies of target tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import pymysql

from shardmerge.proto import config_pb2, errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.dry_run.lock_outlook import LockOutlook, PendingStatement, ShardPosition, lock_outlook
from shardmerge.worker.ddl.dry_run.model import Answer, ShardTable, SimulatedWait, changes_structure, statement_for
from shardmerge.worker.ddl.dry_run.risks import Change, listed, risks, session_risk
from shardmerge.worker.ddl.execute.added_keys import TargetKeys, with_extracted_columns
from shardmerge.worker.ddl.execute.optimistic import (
    STRICT,
    TargetJoin,
    compute_join,
    is_strict,
    shard_label,
    unrecorded,
)
from shardmerge.worker.ddl.execute.structure_check import check_mergeable, check_same_meaning, merged_statement
from shardmerge.worker.ddl.schema_join.model import NotJoinable, ShardSchema
from shardmerge.worker.ddl.split.pieces import statements_at
from shardmerge.worker.ddl.sql.dialect import Dialect
from shardmerge.worker.ddl.sql.table_definition import TableDefinition, parse_table_definition
from shardmerge.worker.ddl.sql.target_statement import reuses_names, time_dependent_columns
from shardmerge.worker.ddl.structure.schema_tracker import SchemaTracker, Tracked
from shardmerge.worker.ddl.structure.structure_after import refusal_of, structure_after
from shardmerge.worker.ddl.structure.structure_digest import CanonicalCreates, digest_of
from shardmerge.worker.ddl.structure.target_copy import CopyStatement, TargetCopies
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.target.records.dropped_columns import Member
from shardmerge.worker.target.tables.extracted_keys import created_keys

_LATER = 1e12  # later than any real time: tables that are recorded as parked came first


@dataclass(slots=True)
class DryRun:
    """For one thread. ``tables``: all shard tables of the task that are recorded. ``sources``: the sources on which it
    runs; a lock waits for no shard table of others. ``unrecorded_sources``: those of them without records.
    ``dialect``: of a source, by whether it is a MariaDB. ``routed``: whether a source's rules let a (schema, table)
    through."""

    task: str
    mode: config_pb2.ShardMode
    tables: dict[Member, ShardTable]
    sources: frozenset[str]
    unrecorded_sources: tuple[str, ...]
    copies: TargetCopies
    dialect: Callable[[bool], Dialect]
    routed: Callable[[str, str, str], bool]
    canonical: CanonicalCreates = field(default_factory=CanonicalCreates)
    _asked: int = 0

    @property
    def tracker(self) -> SchemaTracker:
        return self.copies.tracker

    def apply(self, member: Member, text: str) -> Answer:
        """Apply the statement to one shard table; the next one starts from the result. Raises errors that are not about
        the statement: coded errors of the rules, ``pymysql.MySQLError``."""
        plan = self.tables[member].plan
        self._asked += 1
        try:
            found = self._session_risk(member, text)
            answer = self._take(member, text)
            return replace(answer, statement=self._in_parts(answer.statement), risks=(*found, *answer.risks))
        except ShardmergeError as error:
            if error.spec.error_class != "ddl":
                raise
            return Answer(plan, "stops", reason=error.message, error=error)

    def _session_risk(self, member: Member, given: str) -> tuple[str, ...]:
        own = self.tables[member]
        if self.mode == config_pb2.SHARD_MODE_NONE or not self._others(member):
            return ()
        statement, ddl = statement_for(given, own.plan)
        return session_risk(statement, ddl, own.plan, is_mariadb=own.is_mariadb)

    def _take(self, member: Member, given: str) -> Answer:
        own, others = self.tables[member], self._others(member)
        plan = own.plan
        statement, ddl = statement_for(given, plan)
        refusal = self._refusal(plan, statement)
        if not changes_structure(self.task, plan, statement, ddl, partial(self.routed, plan.source)):
            return Answer(plan, "nothing", reason="only names change, which the preview does not cover")
        if own.waits is not None:
            return self._still_waits(member, own.waits)
        text = merged_statement(statement, ddl, plan.table, own.creation)
        if not text:
            return Answer(plan, "nothing", reason="the statement has no effect on merged tables")
        if self.mode == config_pb2.SHARD_MODE_NONE and others:
            raise refusal(
                errors.ddl.NEEDS_SHARD_MODE,
                table=plan.table.full_name,
                shards=len(others) + 1,
                target=plan.target.quoted,
            )
        if own.creation is None:
            raise refusal(errors.ddl.NO_CREATION, table=plan.table.full_name)
        if self.mode != config_pb2.SHARD_MODE_NONE:
            check_mergeable(plan, (each.plan for each in others.values()), refusal)
            columns = time_dependent_columns(statement, ddl, plan.table, True, is_mariadb=own.is_mariadb)
            if others and columns:
                raise refusal(
                    errors.ddl.VALUES_OF_TIME,
                    table=plan.table.full_name,
                    column=", ".join(columns),
                    shards=len(others) + 1,
                    target=plan.target.quoted,
                )
        check_same_meaning(statement, ddl, plan, own.creation, refusal)
        dialect = self.dialect(own.is_mariadb)
        text = dialect.for_target(text, statement.sql_mode or 0)

        def refused(table: str, reason: object, errno: int) -> ShardmergeError:
            return refusal(errors.ddl.STRUCTURE_REFUSES, table=table, reason=reason, errno=errno)

        tracked = structure_after(
            self.tracker, plan.table, own.creation, text, statement, ddl, STRICT, dialect, refused
        )
        waits = SimulatedWait(statement, ddl, text, STRICT, tracked, 0.0)
        if self.mode == config_pb2.SHARD_MODE_NONE:
            return self._runs(member, waits)
        if self.mode == config_pb2.SHARD_MODE_OPTIMISTIC:
            match self._joined(member, waits):
                case TargetJoin() as join:
                    return self._joins(member, waits, join)
                case NotJoinable(reason=why, waits=can_wait):
                    waits = replace(waits, why=why, contradicts=not can_wait)
        # After all that are parked already: they came first.
        self._put(member, replace(own, waits=replace(waits, since=_LATER + self._asked)))
        return self._parks(member, self.tables[member].waits or waits)

    # --- shard-mode optimistic

    def _joined(self, member: Member, waits: SimulatedWait) -> TargetJoin | NotJoinable:
        """See worker/ddl/execute/optimistic.py."""
        own, others = self.tables[member], self._others(member)
        coming = [
            ShardSchema(shard_label(each.plan), parse_table_definition(each.waits.tracked.creation), frozenset())
            for each in others.values()
            if each.waits is not None
        ]
        shards: dict[Member, ShardSchema] = {}
        for at, each in others.items():
            shape = self._definition(each)
            if shape is None:
                return unrecorded(each.plan)
            one_lane = each.plan.one_lane or each.waits is not None
            shards[at] = ShardSchema(shard_label(each.plan), shape, each.dropped, one_lane)
        before = self._definition(own)
        assert before is not None  # noqa: S101 - for the type checker: it was read before
        return compute_join(
            parse_table_definition(self.copies.creation(own.plan.target)),
            shards,
            member,
            ShardSchema(shard_label(own.plan), before, own.dropped),
            parse_table_definition(waits.tracked.creation),
            waits.ddl,
            strict=is_strict(STRICT.sql_mode, own.plan.table),
            coming=coming,
            extension=self._keys(own.plan).extension,
        )

    def _joins(self, member: Member, waits: SimulatedWait, join: TargetJoin) -> Answer:
        own = self.tables[member]
        target = own.plan.target
        clauses = ", ".join(join.clauses)
        sent = CopyStatement(f"ALTER TABLE {self.copies.place.quoted} {clauses}", STRICT) if clauses else None
        statement = f"ALTER TABLE {target.quoted} {clauses}" if clauses else ""
        goal = self._try(member, waits, statement, sent)
        found_risks = self._risks(member, waits, goal, strict=True)
        self.copies.send(target, sent)
        self._put(member, self._moved(own, waits.tracked))
        for at, dropped in join.dropped.items():
            self._put(at, replace(self.tables[at], dropped=dropped))
        return Answer(own.plan, "at-once" if clauses else "nothing", statement, risks=found_risks)

    # --- parked tables

    def _parks(self, member: Member, waits: SimulatedWait) -> Answer:
        """A shard table is parked at the statement, which runs once all shard tables have reached it."""
        plan = self.tables[member].plan
        found = self._lock_outlook(member)
        if found.is_complete and not self.unrecorded_sources:
            return self._runs(member, waits, found)
        target = self._on(waits, plan.target)
        answer = self._waiting(plan, waits, found, target)
        try:
            goal = self._try(member, waits, target, self._sent_of(waits, plan.target))
        except ShardmergeError as error:
            return replace(answer, risks=(*answer.risks, f"currently the target would refuse it: {error.message}"))
        return replace(answer, risks=(*self._risks(member, waits, goal, strict=False, all_have=True), *answer.risks))

    def _waiting(self, plan: TablePlan, waits: SimulatedWait, found: LockOutlook, target: str) -> Answer:
        missing = tuple(self.tables[at].plan for at in (*found.missing, *found.conflicting))
        owner = found.first[0]
        runs = self._in_parts(target)
        parts = [waits.why] if waits.why else []
        if found.missing:
            names = listed([shard_label(self.tables[at].plan) for at in found.missing])
            parts.append(f"waits for {len(found.missing)} shard table(s): {names}, then source {owner} runs: {runs}")
        if found.conflicting:
            names = listed([shard_label(self.tables[at].plan) for at in found.conflicting])
            parts.append(f"{names} are parked at another statement: see shard-ddl-lock")
        if self.unrecorded_sources:
            parts.append(f"source(s) {', '.join(self.unrecorded_sources)} have not published their shard tables")
        contradicts = bool(found.contradicting)
        if contradicts:
            parts.append("only an operator can release it (shard-ddl-lock unlock)")
        held = f"rows of {shard_label(plan)} after the statement are not applied until it runs"
        found_risks = (held, *self._stopped(plan))
        return Answer(plan, "waits", target, "; ".join(parts), contradicts, owner, missing, found_risks)

    def _stopped(self, plan: TablePlan) -> tuple[str, ...]:
        """A sentence about the shard tables of the target for which no lock waits."""
        found = [each.plan for at, each in self.tables.items() if at[0] not in self.sources]
        names = [shard_label(each) for each in found if each.target == plan.target]
        if not names:
            return ()
        return (
            f"{listed(names)}: not counted, because the task is stopped there and no lock waits for it; start it there "
            "again only when its structure fits the target",
        )

    def _still_waits(self, member: Member, waits: SimulatedWait) -> Answer:
        plan = self.tables[member].plan
        found = self._lock_outlook(member)
        target = self._on(waits, plan.target)
        answer = self._waiting(plan, waits, found, target)
        reason = f"it is parked already, at {waits.text}, and reaches this statement later"
        return replace(answer, reason=f"{reason}; {answer.reason}" if answer.reason else reason)

    def _lock_outlook(self, member: Member) -> LockOutlook:
        others = {at: each for at, each in self._others(member).items() if at[0] in self.sources}
        members = {member: self.tables[member], **others}
        places: dict[Member, ShardPosition] = {}
        for at, each in members.items():
            waits = each.waits
            before = (
                PendingStatement(
                    waits.form,
                    digest_of(waits.tracked.creation),
                    waits.since,
                    waits.contradicts,
                    reuses_names=reuses_names(waits.ddl, waits.tracked.table),
                )
                if waits
                else None
            )
            places[at] = ShardPosition(self._digest(each), before)
        return lock_outlook(places, member)

    def _runs(self, member: Member, waits: SimulatedWait, found: LockOutlook | None = None) -> Answer:
        """The statement itself runs at the target: no shard table is missing."""
        plan = self.tables[member].plan
        statement, sent = self._on(waits, plan.target), self._sent_of(waits, plan.target)
        goal = self._try(member, waits, statement, sent)
        found_risks = self._risks(member, waits, goal, strict=False, all_have=True)
        self.copies.send(plan.target, sent)
        for at in found.ready if found is not None else (member,):
            each = self.tables[at]
            self._put(at, self._moved(each, each.waits.tracked if each.waits is not None else waits.tracked))
        if found is None:
            return Answer(plan, "at-once", statement, owner=plan.source, risks=found_risks)
        found_risks = (*found_risks, *self._stopped(plan))
        reason = "all shard tables have reached it"
        return Answer(plan, "at-once", statement, reason, owner=found.first[0], risks=found_risks)

    # --- the target

    def _on(self, waits: SimulatedWait, target: TargetTable, place: TargetTable | None = None) -> str:
        """The statement as it runs at ``target``. ``place``: the table that it names instead."""
        text, plan = waits.on(target if place is None else place), self._plan_of(target)
        return with_extracted_columns(text, waits.statement.sql_mode or 0, self._keys(plan))

    def _sent_of(self, waits: SimulatedWait, target: TargetTable) -> CopyStatement:
        return CopyStatement(self._on(waits, target, self.copies.place), waits.session)

    def _in_parts(self, statement: str) -> str:
        """The statements that the target runs for ``statement``, for people."""
        return "; ".join(statements_at(self.tracker.target, statement, STRICT.sql_mode)) if statement else ""

    def _keys(self, plan: TablePlan) -> TargetKeys:
        """The unique keys of the plan's target after the statements so far."""
        if not created_keys(plan).columns:
            return TargetKeys()
        return TargetKeys.of(plan, self.copies.creation(plan.target).text)

    def _plan_of(self, target: TargetTable) -> TablePlan:
        return next(each.plan for each in self.tables.values() if each.plan.target == target)

    def _try(self, member: Member, waits: SimulatedWait, statement: str, sent: CopyStatement | None) -> TableDefinition:
        """The target after a statement. Raises DDL_REFUSED."""
        plan = self.tables[member].plan
        refusal = self._refusal(plan, replace(waits.statement, text=statement))

        def refused(_: str, reason: object, errno: int) -> ShardmergeError:
            return refusal(errors.ddl.DDL_REFUSED, reason=reason, errno=errno)

        try:
            return parse_table_definition(self.copies.creation(plan.target, sent))
        except pymysql.MySQLError as error:
            raise refusal_of(error, plan.target.quoted, refused) from error

    # --- parts

    def _risks(
        self, member: Member, waits: SimulatedWait, goal: TableDefinition, *, strict: bool, all_have: bool = False
    ) -> tuple[str, ...]:
        own = self.tables[member]
        after = parse_table_definition(waits.tracked.creation)
        before, others = self._definition(own), dict[str, TableDefinition]()
        for each in self._others(member).values():
            shape = after if all_have else self._definition(each)
            if shape is not None:
                others[shard_label(each.plan)] = shape
        return risks(
            Change(
                shard_label(own.plan),
                waits.ddl,
                before if before is not None else after,
                after,
                parse_table_definition(self.copies.creation(own.plan.target)),
                goal,
                others,
                strict,
            )
        )

    def _refusal(self, plan: TablePlan, statement: Statement) -> Callable[..., ShardmergeError]:
        def refusal(spec: ErrorSpec, **more: object) -> ShardmergeError:
            text = " ".join(statement.text.split())
            return spec(source=plan.source, task=self.task, position=statement.position, statement=text, **more)

        return refusal

    def _others(self, member: Member) -> Mapping[Member, ShardTable]:
        target = self.tables[member].plan.target
        return {at: each for at, each in self.tables.items() if at != member and each.plan.target == target}

    def _printed(self, each: ShardTable) -> CreateStatement | None:
        return None if each.creation is None else self.canonical.canonical(each.plan.table, each.creation, self.tracker)

    def _definition(self, each: ShardTable) -> TableDefinition | None:
        printed = self._printed(each)
        return None if printed is None else parse_table_definition(printed)

    def _digest(self, each: ShardTable) -> str:
        printed = self._printed(each)
        return "" if printed is None else digest_of(printed)

    def _moved(self, each: ShardTable, tracked: Tracked) -> ShardTable:
        plan = replace(each.plan, table=tracked.table)
        return replace(each, plan=plan, creation=tracked.creation, waits=None)

    def _put(self, member: Member, table: ShardTable) -> None:
        self.tables[member] = table
