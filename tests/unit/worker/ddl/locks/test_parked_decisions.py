"""What is decided about parked tables: columns that are added again, an operator's overrides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmerge.proto import state_pb2
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.stored_override import OverrideKind, StoredOverride
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.locks.added_again import dropped_by_all
from shardmerge.worker.ddl.locks.lock_protocol import Execute, form_of, next_lock_step
from shardmerge.worker.ddl.locks.parked_override import OverriddenStatement, overridden, replaces_lock_run
from shardmerge.worker.target.members.member_cache import SourceMembers, TaskMembers
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.executed_locks import LockRun
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.statement_session import UNKNOWN_SESSION
from shardmerge.worker.target.records.unlocked_statements import UnlockedStatement
from tests.support.plans import integer, table_plan

ORDERS = TargetTable("shop", "orders")
WITHOUT = (integer(),)
WITH = (integer(), integer("C1"))


def at(pos: int) -> SourcePosition:
    return SourcePosition("mysql-bin.000001", pos, "", server="s")


def parked(text: str = "ALTER TABLE t ADD COLUMN c1 INT", number: int = 0) -> Parked:
    place = StatementPlace(at(100), 0)
    return Parked(number, text, "d", 0, False, UNKNOWN_SESSION, place, at(200), 1.0, "it was dropped", contradicts=True)


def members(**plans: TablePlan) -> TaskMembers:
    """One shard table of each source, with number 0."""
    return TaskMembers({source: SourceMembers({}, {0: plan}, {}, {}, None, None) for source, plan in plans.items()}, {})


def plan(columns: tuple[object, ...] = WITHOUT) -> TablePlan:
    return table_plan(columns, (0,))  # pyright: ignore[reportArgumentType]


DROPPED = {("a", 0): frozenset({"c1"}), ("b", 0): frozenset({"c1", "c2"})}


def test_a_column_that_no_shard_table_has_any_more() -> None:
    assert dropped_by_all(parked(), ORDERS, members(a=plan(), b=plan()), DROPPED) == ("c1",)


@pytest.mark.parametrize(
    ("text", "b", "dropped"),
    [
        pytest.param("ALTER TABLE t ADD COLUMN c1 INT", plan(), {("a", 0): frozenset({"c1"})}, id="one keeps it"),
        pytest.param("ALTER TABLE t ADD COLUMN c1 INT", plan(WITH), DROPPED, id="one has it again"),
        pytest.param("ALTER TABLE t ADD COLUMN c1 INT, ADD COLUMN c2 INT", plan(), DROPPED, id="of two, one"),
        pytest.param("ALTER TABLE t ADD COLUMN c3 INT", plan(), DROPPED, id="a new one"),
        pytest.param("ALTER TABLE t ADD INDEX (c1)", plan(), DROPPED, id="another statement"),
    ],
)
def test_a_column_with_values_is_not_dropped(
    text: str, b: TablePlan, dropped: dict[tuple[str, int], frozenset[str]]
) -> None:
    assert dropped_by_all(parked(text), ORDERS, members(a=plan(), b=b), dropped) == ()


SKIP = StoredOverride(kind=OverrideKind.SKIP, file="mysql-bin.000001", pos=100, server="s")
INJECT = StoredOverride(
    kind=OverrideKind.INJECT, file="mysql-bin.000001", pos=150, statements="ALTER TABLE t ADD x INT"
)


def test_overrides_of_parked_tables() -> None:
    assert overridden((), {0: parked()}) == {}
    assert overridden((SKIP,), {0: replace(parked(), released=True)}) == {}
    assert overridden((replace(SKIP, pos=200),), {0: parked()}) == {}
    [found] = overridden((SKIP,), {0: parked()}).values()
    assert (found.override.texts, found.override.runs_original) == ((), False)
    [found] = overridden((INJECT,), {0: parked()}).values()
    assert (found.override.texts, found.override.runs_original) == (("ALTER TABLE t ADD x INT",), True)


@pytest.mark.parametrize(
    ("run", "before", "after", "runs"),
    [
        (None, "one", "two", True),
        (LockRun("g0", "one"), "one", "two", True),
        pytest.param(LockRun("g0", "two"), "one", "two", False, id="the others have executed it"),
        pytest.param(LockRun("g0", "one"), "one", "one", True, id="it leaves the structure as it is"),
        pytest.param(LockRun("g0", ""), "one", "two", True, id="what the target has is not known"),
    ],
)
def test_when_the_owner_runs_the_statement(run: LockRun | None, before: str, after: str, *, runs: bool) -> None:
    stage = state_pb2.LockRecord.STAGE_EXECUTING
    lock = state_pb2.LockRecord(generation="g1", owner="a", before=before, after=after, stage=stage)
    assert next_lock_step(lock, "a", run, ()) == Execute(runs)
    assert next_lock_step(lock, "b", run, ()) is None
    assert next_lock_step(lock, "a", LockRun("g1", after), ()) is None
    lock.reuses_names = True
    assert next_lock_step(lock, "a", run, ()) == Execute(runs=True), "no structure shows whether it has run"


@pytest.mark.parametrize(
    ("form", "structure", "is_passed"),
    [
        ("f", "other", True),
        pytest.param("f2", "two", True, id="another spelling"),
        ("f2", "three", False),
        ("f2", "", False),
    ],
)
def test_an_unlocked_statement_is_known_by_its_form_or_result(form: str, structure: str, *, is_passed: bool) -> None:
    assert UnlockedStatement("g1", "f", "two", 1.0).is_passed_by(form, structure) is is_passed
    assert not UnlockedStatement("g1", "f", "", 1.0).is_passed_by("f2", structure)


def test_the_override_of_the_owner_s_statement_is_for_the_lock() -> None:
    lock = state_pb2.LockRecord(
        target_schema="shop",
        target_table="orders",
        generation="g1",
        owner="a",
        form=form_of(parked()),
        stage=state_pb2.LockRecord.STAGE_EXECUTING,
    )
    [skip] = overridden((SKIP,), {0: parked()}).values()
    [inject] = overridden((INJECT,), {0: parked()}).values()

    def replaces(one: OverriddenStatement, source: str = "a", run: LockRun | None = None) -> bool:
        return replaces_lock_run(one, plan(), (lock,), source, run)

    assert replaces(skip)
    assert replaces(skip, run=LockRun("g0", ""))
    assert not replaces(skip, run=LockRun("g1", ""))
    assert not replaces(skip, source="b")
    assert not replaces(inject)
    lock.stage = state_pb2.LockRecord.STAGE_GATHERING
    assert not replaces(skip)
