"""Event filters: each row is a sentence of DM's documentation ("Filter Binlog Events") or of tiflow's
pkg/binlog-filter/filter.go (``Filter``, ``matchEvent``)."""

from __future__ import annotations

import pytest

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.table import Table
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.ddl_events import DdlEvents
from shardmerge.worker.rules.event_filter import EventFilterRules, FilterDecision, RowEvents
from tests.support.plans import integer, text

DO, IGNORE, ERROR = pb.FILTER_ACTION_DO, pb.FILTER_ACTION_IGNORE, pb.FILTER_ACTION_ERROR
INSERT, UPDATE, DELETE = 2, 4, 8
PASS, OVER, STOP = FilterDecision.PASS, FilterDecision.SKIP, FilterDecision.STOP


def rule(
    action: pb.FilterAction,
    *events: str,
    schema: str = "s",
    table: str = "t",
    sql: tuple[str, ...] = (),
    name: str = "r",
) -> pb.EventFilter:
    return pb.EventFilter(
        name=name, schema_pattern=schema, table_pattern=table, events=events, sql_patterns=sql, action=action
    )


def filters(*rules: pb.EventFilter, source: tuple[pb.EventFilter, ...] = ()) -> EventFilterRules:
    return EventFilterRules.from_config(pb.SubTaskConfig(event_filters=rules, source_filters=source))


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param([], RowEvents(0, 0, False), id="no rule: everything passes"),
        pytest.param([rule(IGNORE, "delete")], RowEvents(DELETE, 0, True), id="Ignore: what is listed"),
        pytest.param([rule(IGNORE, "all dml")], RowEvents(14, 0, True), id="all dml"),
        pytest.param([rule(IGNORE, "all")], RowEvents(14, 0, True), id="all"),
        pytest.param([rule(IGNORE, "none", "all")], RowEvents(0, 0, False), id="none ends the list"),
        pytest.param([rule(IGNORE, "delete", "none dml", "all")], RowEvents(DELETE, 0, True), id="none dml, for rows"),
        pytest.param([rule(IGNORE, "none ddl", "all dml")], RowEvents(14, 0, True), id="none ddl, not for rows"),
        pytest.param([rule(DO, "insert")], RowEvents(UPDATE | DELETE, 0, True), id="Do: what is not listed"),
        pytest.param([rule(DO, "all dml", "all ddl")], RowEvents(0, 0, False), id="Do of everything"),
        pytest.param([rule(DO, "all dml")], RowEvents(0, 0, True), id="Do passes over TRUNCATE too"),
        pytest.param([rule(ERROR, "delete")], RowEvents(0, DELETE, False), id="Error stops"),
        pytest.param([rule(IGNORE, "truncate table")], RowEvents(0, 0, True), id="rows stay that the source lost"),
        pytest.param([rule(IGNORE, "drop database", table="")], RowEvents(0, 0, True), id="with the schema"),
        pytest.param([rule(IGNORE, "add column")], RowEvents(0, 0, False), id="no row comes or goes by it"),
        pytest.param([rule(IGNORE, sql=("^drop",))], RowEvents(0, 0, True), id="a pattern may mean any statement"),
        pytest.param([rule(DO, sql=("^drop",))], RowEvents(14, 0, True), id="Do with patterns alone lists no row"),
        pytest.param([rule(IGNORE, "delete", table="u")], RowEvents(0, 0, False), id="another table"),
        pytest.param([rule(IGNORE, "delete", schema="S", table="T")], RowEvents(DELETE, 0, True), id="no case"),
        pytest.param(
            [rule(IGNORE, "delete", schema="~^S$", table="~t")],
            RowEvents(DELETE, 0, True),
            id="differs: regular expressions, DM has wildcards only",
        ),
        pytest.param(
            [rule(IGNORE, "delete"), rule(ERROR, "delete", table="")],
            RowEvents(0, DELETE, False),
            id="rules for schemas come first",
        ),
        pytest.param(
            [rule(IGNORE, "insert"), rule(IGNORE, "update", table="t*")],
            RowEvents(INSERT | UPDATE, 0, True),
            id="every rule that matches is asked",
        ),
        pytest.param(
            [rule(DO, "insert"), rule(DO, "update")], RowEvents(14, 0, True), id="two Dos pass what both list"
        ),
        pytest.param(
            [rule(ERROR, "delete"), rule(IGNORE, "delete")], RowEvents(0, DELETE, False), id="the first that says so"
        ),
    ],
)
def test_rows(rules: list[pb.EventFilter], expected: RowEvents) -> None:
    assert filters(*rules).rows("s", "t") == expected


def test_the_sources_rules_come_first() -> None:
    both = filters(rule(IGNORE, "delete"), source=(rule(ERROR, "delete", table=""),))
    assert both.rows("s", "t") == RowEvents(0, DELETE, False)


ADD = DdlEvents.of("alter table", "add column")
BOTH = DdlEvents(
    (
        frozenset({"alter table", "multi schema change", "add column"}),
        frozenset({"alter table", "multi schema change", "drop column"}),
    )
)


@pytest.mark.parametrize(
    ("given", "events", "text", "verdict"),
    [
        (rule(IGNORE, "alter table"), ADD, "", OVER),
        (rule(IGNORE, "add column"), ADD, "", OVER),
        (rule(IGNORE, "drop column"), ADD, "", PASS),
        (rule(IGNORE, "drop column"), BOTH, "", OVER),
        (rule(IGNORE, "multi schema change"), BOTH, "", OVER),
        (rule(IGNORE, "incompatible ddl changes"), BOTH, "", OVER),
        (rule(IGNORE, "incompatible ddl changes"), DdlEvents.of("alter table"), "", PASS),
        (rule(IGNORE, "incompatible ddl changes"), DdlEvents.of("create table"), "", PASS),
        (rule(IGNORE, "incompatible ddl changes"), DdlEvents.of("truncate table"), "", OVER),
        (rule(IGNORE, "all ddl"), DdlEvents.of("create index"), "", OVER),
        (rule(IGNORE, "all dml"), DdlEvents.of("create index"), "", PASS),
        (rule(IGNORE, "none ddl", "all"), DdlEvents.of("create index"), "", PASS),
        (rule(IGNORE, "none dml", "all"), DdlEvents.of("create index"), "", OVER),
        (rule(DO, "add column"), ADD, "", PASS),
        (rule(DO, "add column"), BOTH, "", OVER),
        (rule(DO, "add column", "drop column"), BOTH, "", PASS),
        (rule(DO, "alter table"), BOTH, "", PASS),
        (rule(DO, "insert"), ADD, "", OVER),
        (rule(ERROR, "add column"), ADD, "", STOP),
        (rule(IGNORE, sql=("^drop\\s+procedure", "ADD\\s+column")), ADD, "alter table t add COLUMN c int", OVER),
        (rule(IGNORE, sql=("^add",)), ADD, "alter table t add column c int", PASS),
        (rule(ERROR, sql=("add",)), ADD, "ALTER TABLE t ADD c int", STOP),
        (rule(IGNORE, "drop column", sql=("add",)), ADD, "alter table t add c int", OVER),
        (rule(DO, "alter table", sql=("add",)), ADD, "alter table t add c int", PASS),
        (rule(DO, "alter table", sql=("drop",)), ADD, "alter table t add c int", OVER),
        (rule(DO, sql=("add",)), ADD, "alter table t add c int", OVER),
    ],
)
def test_statements(given: pb.EventFilter, events: DdlEvents, text: str, verdict: FilterDecision) -> None:
    assert filters(given).ddl("s", "t", events, text) is verdict


@pytest.mark.parametrize(
    ("rules", "skips"),
    [
        ([], False),
        ([rule(IGNORE, "all ddl"), rule(IGNORE, "all ddl", table="", name="of schemas")], True),
        ([rule(IGNORE, "all ddl")], False),  # DROP DATABASE drops the table
        ([rule(IGNORE, "alter table"), rule(IGNORE, "drop database", table="")], False),
        ([rule(DO, "all dml"), rule(DO, "all dml", table="")], True),
        ([rule(IGNORE, "all ddl", table="u"), rule(IGNORE, "all ddl", table="u")], False),
        ([rule(ERROR, "all ddl"), rule(ERROR, "all ddl", table="")], False),
    ],
)
def test_whether_statements_reach_the_target(rules: list[pb.EventFilter], skips: bool) -> None:
    assert filters(*rules).skips_structure("s", "t") is skips


def test_names_of_schemas_are_aliases() -> None:
    for listed in ("drop schema", "drop database"):
        only = filters(rule(IGNORE, listed, table=""))
        assert only.ddl("s", "", DdlEvents.of("drop database"), "") is OVER


def test_a_statement_that_is_not_understood_is_for_rules_of_every_schema() -> None:
    everywhere = filters(rule(IGNORE, schema="*", table="", sql=("^frobnicate",)))
    assert everywhere.unknown("FROBNICATE TABLE t") is OVER
    assert everywhere.unknown("something else") is PASS
    assert filters(rule(IGNORE, table="", sql=("^frobnicate",))).unknown("frobnicate") is PASS
    assert filters(rule(IGNORE, "all", schema="*", table="")).unknown("frobnicate") is PASS


def test_a_bad_pattern_names_its_rule() -> None:
    with pytest.raises(ShardmergeError) as caught:
        filters(rule(IGNORE, sql=("(",), name="odd"))
    assert caught.value.spec is errors.config.PATTERN
    assert "filter odd" in caught.value.message


def test_the_plan_of_a_table_has_the_skipped_kinds() -> None:
    subtask = pb.SubTaskConfig(
        source_id="mysql-01",
        event_filters=[rule(IGNORE, "delete"), rule(ERROR, "update", table="u")],
        column_mappings=[
            pb.ColumnMappingRule(
                name="ids",
                schema_pattern="s",
                table_pattern="t",
                target_column="id",
                expression="partition id",
                arguments=["1", "s", "t"],
            )
        ],
    )
    rules = Rules.from_config(subtask)
    tables = [
        Table("s", name, (integer(), text("v")), (0,), "PRIMARY", (("id",),), False, "InnoDB")
        for name in ("t", "u", "w")
    ]
    plans = [rules.plan(at, "mysql-01", table) for at, table in enumerate(tables)]
    assert [(plan.skipped_kinds, plan.stop_kinds, plan.may_lack_rows, plan.own_keys) for plan in plans] == [
        (DELETE, 0, True, True),
        (0, UPDATE, False, False),
        (0, 0, False, False),
    ]
