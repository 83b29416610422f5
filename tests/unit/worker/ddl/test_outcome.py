"""What has become of a statement, for the history."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.ddl.decide.actions import Alter, Create, Rename, ShardTarget
from shardmerge.worker.ddl.decide.operator_override import OperatorOverride
from shardmerge.worker.ddl.outcome import ActedOn, outcome_of
from shardmerge.worker.ddl.sql.statement import CreateTable
from shardmerge.worker.relay.model import Statement

_TARGET = TargetTable("shop", "orders")


def _shard(schema: str, table: str) -> ShardTarget:
    plan = SimpleNamespace(table=SimpleNamespace(schema=schema, name=table), target=_TARGET, shard=0)
    return cast("ShardTarget", SimpleNamespace(plan=plan, name=(schema, table), target=_TARGET))


def _statement(text: str) -> Statement:
    return cast("Statement", SimpleNamespace(text=text, position="(b.1, 4)"))


def _result(acted_on: ActedOn, override: OperatorOverride | None = None, parked: int = 0) -> str:
    return outcome_of(_statement("ALTER"), acted_on, override, parked, lambda _: None).result


def test_the_result_of_a_statement() -> None:
    alter = Alter(_shard("d", "t"))
    assert _result(ActedOn((alter,))) == "applied"
    assert _result(ActedOn((alter,)), parked=2) == "parked: it waits for other shard tables"
    assert _result(ActedOn((), (alter,))) == "skipped by an event filter"
    assert _result(ActedOn((alter,)), OperatorOverride((), runs_original=False)) == "skipped by an operator"
    assert "replaced" in _result(ActedOn((alter,)), OperatorOverride(("x",), runs_original=False))
    assert "after an operator's" in _result(ActedOn((alter,)), OperatorOverride(("x",), runs_original=True))


def test_the_same_statement_on_many_shard_tables_has_one_form() -> None:
    outcomes = [
        outcome_of(
            _statement(f"ALTER TABLE\n  shop_01.order_{number} ADD c INT"),
            ActedOn((Alter(_shard("shop_01", f"order_{number}")),)),
            None,
            0,
            lambda _: None,
        )
        for number in (7, 8)
    ]
    assert {(one.form, one.targets, one.position) for one in outcomes} == {
        ("ALTER TABLE ?.? ADD c INT", ("`shop`.`orders`",), "(b.1, 4)")
    }
    assert outcomes[0].statement == "ALTER TABLE shop_01.order_7 ADD c INT"


def test_the_target_of_a_new_table_is_that_of_the_rules() -> None:
    create = Create(("d", "new"), cast("CreateTable", None), None)
    found = outcome_of(_statement("CREATE TABLE d.new (a INT)"), ActedOn((create,)), None, 0, lambda _: _TARGET)
    assert (found.targets, found.form) == (("`shop`.`orders`",), "CREATE TABLE ?.? (a INT)")
    assert outcome_of(_statement("x"), ActedOn((create,)), None, 0, lambda _: None).targets == ()
    rename = Rename(((_shard("d", "old"), ("d", "new")),))
    assert outcome_of(_statement("x"), ActedOn((rename,)), None, 0, lambda _: None).targets == ("`shop`.`orders`",)
