"""What a sharding DDL would come to, one shard table after the other, on a copy of the records: nothing of it runs.

    records at the target ──▶ tables, targets (in memory) ── statement ──▶ tracker ──▶ Answer, and both behind it

A server is asked through the tracker only (worker/ddl/tracker.py); of a target it is asked with an empty copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import pymysql

from proto import config_pb2, errors
from proto.errors import ErrorSpec, ShardmergeError
from worker.ddl.behind import behind, refusal_of
from worker.ddl.creation import Creation
from worker.ddl.described import Shape, described
from worker.ddl.dialect import Dialect
from worker.ddl.digests import Printed, digest_of
from worker.ddl.dropped import Member
from worker.ddl.gathering import Before, Gathering, Place, gathering
from worker.ddl.optimistic import STRICT, Join, blocked_by, is_strict, joined_target, name_of, unrecorded
from worker.ddl.rehearsed import Answer, ShardTable, Waits, alters, given_at
from worker.ddl.risks import Change, listed, risks
from worker.ddl.shape import merged_text
from worker.ddl.shards import NotJoinable, Shard
from worker.ddl.structure import check_meaning, check_mergeable, index_names
from worker.ddl.target_copy import Sent, TargetCopies
from worker.ddl.tracker import Tracked, Tracker
from worker.plan import TablePlan
from worker.relay.model import Statement

_LATER = 1e12  # seconds that no clock shows: whoever is recorded as waiting came first


@dataclass(slots=True)
class Rehearsal:
    """For one thread. ``tables``: all shard tables of the task. ``silent``: its sources of which nothing is recorded.
    ``dialect``: of a source, by whether it is a MariaDB; ``routed``: whether a source's rules let a (schema, table)
    through."""

    task: str
    mode: config_pb2.ShardMode
    tables: dict[Member, ShardTable]
    silent: tuple[str, ...]
    copies: TargetCopies
    dialect: Callable[[bool], Dialect]
    routed: Callable[[str, str, str], bool]
    printed: Printed = field(default_factory=Printed)
    _asked: int = 0

    @property
    def tracker(self) -> Tracker:
        return self.copies.tracker

    def take(self, member: Member, text: str) -> Answer:
        """The statement comes to one shard table; what it leads to is there for the next. Raises the errors that are
        not about the statement: coded ones of the rules, ``pymysql.MySQLError``."""
        plan = self.tables[member].plan
        self._asked += 1
        try:
            return self._take(member, text)
        except ShardmergeError as error:
            if error.spec.error_class != "ddl":
                raise
            return Answer(plan, "stops", reason=error.message, error=error)

    def _take(self, member: Member, given: str) -> Answer:
        own, others = self.tables[member], self._others(member)
        plan = own.plan
        statement, ddl = given_at(given, plan)
        refusal = self._refusal(plan, statement)
        if not alters(self.task, plan, statement, ddl, partial(self.routed, plan.source)):
            return Answer(plan, "nothing", reason="nothing but names changes, which is not rehearsed")
        if own.waits is not None:
            return self._still_waits(member, own.waits)
        text = merged_text(statement, ddl, None if own.creation is None else index_names(own.creation))
        if not text:
            return Answer(plan, "nothing", reason="nothing of the statement is for merged tables")
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
        check_meaning(statement, ddl, plan, own.creation, refusal)
        dialect = self.dialect(own.is_mariadb)
        text = dialect.spelt(text, statement.sql_mode or 0)

        def refused(table: str, reason: object, errno: int) -> ShardmergeError:
            return refusal(errors.ddl.STRUCTURE_REFUSES, table=table, reason=reason, errno=errno)

        tracked = behind(self.tracker, plan.table, own.creation, text, statement, ddl, STRICT, dialect, refused)
        waits = Waits(statement, ddl, text, STRICT, tracked, 0.0)
        if self.mode == config_pb2.SHARD_MODE_NONE:
            return self._runs(member, waits)
        if self.mode == config_pb2.SHARD_MODE_OPTIMISTIC:
            match self._joined(member, waits):
                case Join() as join:
                    return self._joins(member, waits, join)
                case NotJoinable(reason=why, waits=can_wait):
                    waits = replace(waits, why=why, contradicts=not can_wait)
        # Behind all that wait already: they came first.
        self._put(member, replace(own, waits=replace(waits, since=_LATER + self._asked)))
        return self._gathers(member, self.tables[member].waits or waits)

    # --- shard-mode optimistic

    def _joined(self, member: Member, waits: Waits) -> Join | NotJoinable:
        """See worker/ddl/optimistic.py."""
        own, others = self.tables[member], self._others(member)
        held = [each.plan for each in others.values() if each.is_held or each.waits is not None]
        if held:
            return blocked_by(held[0])
        shards: dict[Member, Shard] = {}
        for at, each in others.items():
            shape = self._shape(each)
            if shape is None:
                return unrecorded(each.plan)
            shards[at] = Shard(name_of(each.plan), shape, each.dropped)
        before = self._shape(own)
        assert before is not None  # noqa: S101 - for the type checker: it was asked for before
        return joined_target(
            described(self.copies.creation(own.plan.target)),
            shards,
            member,
            Shard(name_of(own.plan), before, own.dropped),
            described(waits.tracked.creation),
            waits.ddl,
            strict=is_strict(STRICT.sql_mode, own.plan.table),
        )

    def _joins(self, member: Member, waits: Waits, join: Join) -> Answer:
        own = self.tables[member]
        target = own.plan.target
        clauses = ", ".join(join.clauses)
        sent = Sent(f"ALTER TABLE {self.copies.place.quoted} {clauses}", STRICT) if clauses else None
        statement = f"ALTER TABLE {target.quoted} {clauses}" if clauses else ""
        goal = self._try(member, waits, statement, sent)
        told = self._risks(member, waits, goal, strict=True)
        self.copies.send(target, sent)
        self._put(member, self._moved(own, waits.tracked))
        for at, dropped in join.dropped.items():
            self._put(at, replace(self.tables[at], dropped=dropped))
        return Answer(own.plan, "at-once" if clauses else "nothing", statement, risks=told)

    # --- who waits

    def _gathers(self, member: Member, waits: Waits) -> Answer:
        """A shard table stands before the statement: it runs once all have come."""
        plan = self.tables[member].plan
        found = self._gathering(member)
        if found.is_complete and not self.silent:
            return self._runs(member, waits, found)
        target = waits.on(plan.target)
        answer = self._waiting(plan, waits, found, target)
        try:
            goal = self._try(member, waits, target, self._sent_of(waits))
        except ShardmergeError as error:
            return replace(
                answer, risks=(*answer.risks, f"as things stand the target would refuse it: {error.message}")
            )
        return replace(answer, risks=(*self._risks(member, waits, goal, strict=False, all_have=True), *answer.risks))

    def _waiting(self, plan: TablePlan, waits: Waits, found: Gathering, target: str) -> Answer:
        missing = tuple(self.tables[at].plan for at in (*found.missing, *found.conflicting))
        owner = found.first[0]
        parts = [waits.why] if waits.why else []
        if found.missing:
            names = listed([name_of(self.tables[at].plan) for at in found.missing])
            parts.append(f"waits for {len(found.missing)} shard table(s): {names}, then source {owner} runs: {target}")
        if found.conflicting:
            names = listed([name_of(self.tables[at].plan) for at in found.conflicting])
            parts.append(f"{names} wait before another statement: see shard-ddl-lock")
        if self.silent:
            parts.append(f"source(s) {', '.join(self.silent)} have not told of their shard tables")
        contradicts = bool(found.contradicting)
        if contradicts:
            parts.append("only an operator can let it go on (shard-ddl-lock unlock)")
        held = f"rows of {name_of(plan)} that come behind the statement are not applied until it runs"
        return Answer(plan, "waits", target, "; ".join(parts), contradicts, owner, missing, (held,))

    def _still_waits(self, member: Member, waits: Waits) -> Answer:
        plan = self.tables[member].plan
        found = self._gathering(member)
        target = waits.on(plan.target)
        answer = self._waiting(plan, waits, found, target)
        said = f"it waits already, before {waits.text}, and comes to this one later"
        return replace(answer, reason=f"{said}; {answer.reason}" if answer.reason else said)

    def _gathering(self, member: Member) -> Gathering:
        everyone = {member: self.tables[member], **self._others(member)}
        places: dict[Member, Place] = {}
        for at, each in everyone.items():
            waits = each.waits
            before = (
                Before(waits.form, digest_of(waits.tracked.creation), waits.since, waits.contradicts) if waits else None
            )
            places[at] = Place(self._digest(each), before)
        return gathering(places, member)

    def _runs(self, member: Member, waits: Waits, found: Gathering | None = None) -> Answer:
        """The statement itself runs at the target: nobody is waited for any more."""
        plan = self.tables[member].plan
        statement, sent = waits.on(plan.target), self._sent_of(waits)
        goal = self._try(member, waits, statement, sent)
        told = self._risks(member, waits, goal, strict=False, all_have=True)
        self.copies.send(plan.target, sent)
        for at in found.ready if found is not None else (member,):
            each = self.tables[at]
            self._put(at, self._moved(each, each.waits.tracked if each.waits is not None else waits.tracked))
        reason = "all shard tables have come to it" if found is not None else ""
        owner = found.first[0] if found is not None else plan.source
        return Answer(plan, "at-once", statement, reason, owner=owner, risks=told)

    # --- the target

    def _sent_of(self, waits: Waits) -> Sent:
        return Sent(waits.on(self.copies.place), waits.given)

    def _try(self, member: Member, waits: Waits, statement: str, sent: Sent | None) -> Shape:
        """The target behind a statement. Raises DDL_REFUSED."""
        plan = self.tables[member].plan
        refusal = self._refusal(plan, replace(waits.statement, text=statement))

        def refused(_: str, reason: object, errno: int) -> ShardmergeError:
            return refusal(errors.ddl.DDL_REFUSED, reason=reason, errno=errno)

        try:
            return described(self.copies.creation(plan.target, sent))
        except pymysql.MySQLError as error:
            raise refusal_of(error, plan.target.quoted, refused) from error

    # --- parts

    def _risks(
        self, member: Member, waits: Waits, goal: Shape, *, strict: bool, all_have: bool = False
    ) -> tuple[str, ...]:
        own = self.tables[member]
        after = described(waits.tracked.creation)
        before, others = self._shape(own), dict[str, Shape]()
        for each in self._others(member).values():
            shape = after if all_have else self._shape(each)
            if shape is not None:
                others[name_of(each.plan)] = shape
        return risks(
            Change(
                name_of(own.plan),
                waits.ddl,
                before if before is not None else after,
                after,
                described(self.copies.creation(own.plan.target)),
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

    def _printed(self, each: ShardTable) -> Creation | None:
        return None if each.creation is None else self.printed.creation(each.plan.table, each.creation, self.tracker)

    def _shape(self, each: ShardTable) -> Shape | None:
        printed = self._printed(each)
        return None if printed is None else described(printed)

    def _digest(self, each: ShardTable) -> str:
        printed = self._printed(each)
        return "" if printed is None else digest_of(printed)

    def _moved(self, each: ShardTable, tracked: Tracked) -> ShardTable:
        plan = replace(each.plan, table=tracked.table)
        return replace(each, plan=plan, creation=tracked.creation, waits=None, is_held=False)

    def _put(self, member: Member, table: ShardTable) -> None:
        self.tables[member] = table
