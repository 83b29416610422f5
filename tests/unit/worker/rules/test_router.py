"""Routes: each row is a sentence of TiDB DM's documentation or of its code, which it names; ``differs`` says where this
program decides otherwise on purpose.

DM's documentation is its page "TiDB Data Migration Table Routing"; its code is tidb's
pkg/util/regexpr-router/regexpr_router.go over pkg/util/table-router/router.go.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.rules.router import Extracted, Router

DOCS = 'docs "Table Routing"'
ROUTE = "tidb pkg/util/regexpr-router/regexpr_router.go, Route"
ROUTE_TEST = "tidb pkg/util/regexpr-router/regexpr_router_test.go"
OLD_TEST = "tidb pkg/util/table-router/router_test.go"
EXTRACT = "tidb pkg/util/table-router/router.go, extractVal"
LOWER = "tidb pkg/util/table-router/router.go, ToLower"
ONE_ONLY = "there a table that two rules with table-pattern match, or two without, stops the task whatever they say"


class Row(NamedTuple):
    """``routes``: name, schema-pattern, table-pattern, target-schema and target-table of each, "" for what is left
    out; ``targets``: where tables go, both as schema.table, "-" for a conflict."""

    says: str
    source: str
    routes: str
    targets: dict[str, str]
    differs: str = ""
    case_sensitive: bool = False


def router(routes: str, case_sensitive: bool = False) -> Router:
    """A route in each line, its parts parted by bars."""
    found = [[part.strip() for part in line.split(" | ")] for line in routes.strip().splitlines()]
    return Router.from_config(
        pb.SubTaskConfig(
            task="t",
            source_id="mysql-01",
            case_sensitive=case_sensitive,
            routes=[
                pb.RouteRule(
                    name=name,
                    schema_pattern=schema,
                    table_pattern=table.strip("-"),
                    target_schema=target_schema,
                    target_table=target_table.strip("-"),
                )
                for name, schema, table, target_schema, target_table in found
            ],
        )
    )


ROWS = [
    Row(
        "no rule matches: the table keeps its name",
        ROUTE,
        "a | s | t | x | y",
        {"s.u": "s.u", "r.t": "r.t", "S1.T": "S1.T"},
    ),
    Row(
        "shard schemas and tables are merged",
        DOCS + ", Merge sharded schemas and tables",
        """
        rule-1 | test_* | t_* | test | t
        rule-2 | test_* | - | test | -
        """,
        {"test_1.t_1": "test.t", "test_2.t_33": "test.t", "test_2.other": "test.other", "x.t_1": "x.t_1"},
    ),
    Row(
        "a rule without table-pattern keeps the names of tables",
        DOCS + ", Merge sharded schemas",
        "rule-1 | test_* | - | test | -",
        {"test_1.t_1": "test.t_1", "test_2.T_2": "test.T_2", "test.t": "test.t"},
    ),
    Row(
        "target-table without table-pattern: all tables of the schemas",
        ROUTE,
        "a | s_* | - | all | rows",
        {"s_1.t": "all.rows", "s_2.u": "all.rows"},
    ),
    Row(
        "table-pattern without target-table: they keep their names",
        ROUTE,
        "a | s_* | t_* | all | -",
        {"s_1.t_1": "all.t_1", "s_1.u": "s_1.u"},
    ),
    Row(
        "a rule with table-pattern beats one without",
        OLD_TEST + ", TestRoute",
        """
        a | Test_1_* | abc* | t1 | abc
        b | test_1_* | test* | t2 | test
        c | test_1_* | - | test | -
        d | test_2_* | abc* | t1 | abc
        """,
        {"test_1_a.abc1": "t1.abc", "test_2_a.abc2": "t1.abc", "test_1_a.test1": "t2.test", "test_1_a.xyz": "test.xyz"},
    ),
    Row(
        "even if its schema-pattern is the wider one",
        ROUTE + ", tblRules before schmRules",
        """
        wide | * | t_* | tables | t
        exact | s_1 | - | schemas | -
        """,
        {"s_1.t_1": "tables.t", "s_1.u": "schemas.u"},
    ),
    Row(
        "and if it is a regular expression",
        ROUTE + ", tblRules before schmRules",
        """
        wide | ~. | ~^t | tables | t
        exact | s_1 | - | schemas | all
        """,
        {"s_1.t_1": "tables.t", "s_1.u": "schemas.all"},
    ),
    Row(
        "regular expressions and wildcards in one task",
        ROUTE_TEST + ", TestRegExprRoute",
        r"""
        1 | ~test.[0-9]+ | - | dtest1 | -
        2 | ~test2?[animal\|human] | ~tbl.*[cat\|dog]+ | dtest2 | dtable2
        3 | ~test3_(schema)?.* | test3_* | dtest3 | dtable3
        4 | test4s_* | ~testtable_[donot_delete]? | dtest4 | dtable4
        """,
        {
            "tests100.table1": "dtest1.table1",
            "test2animal.tbl_animal_dogcat": "dtest2.dtable2",
            "test3_schema_meta.test3_tail": "dtest3.dtable3",
            "test4s_2022.testtable_donot_delete": "dtest4.dtable4",
            "mytst5566.gtable": "mytst5566.gtable",
        },
    ),
    Row(
        "case does not count, and the names of the table stay as they are",
        OLD_TEST + ", TestRoute",
        "a | Shop_* | - | All | -",
        {"SHOP_1.Cart": "All.Cart", "shop_2.cart": "All.cart"},
    ),
    Row(
        "case-sensitive: true",
        OLD_TEST + ", TestCaseSensitive",
        """
        a | Test_1_* | abc* | t1 | abc
        c | test_1_* | - | test | -
        """,
        {"test_1_a.abc1": "test.abc1", "Test_1_a.abc1": "t1.abc", "TEST_1_a.abc1": "TEST_1_a.abc1"},
        case_sensitive=True,
    ),
    Row(
        r"\D stays what it is",
        LOWER,
        r"a | s | ~^T_\D$ | all | t",
        {"s.t_a": "all.t", "s.t_1": "s.t_1"},
        differs=r"there the expression becomes lower case, and \D turns into \d",
    ),
    Row(
        "exact names beat wildcards",
        DOCS + ", Incorrect table routing",
        """
        rule-1 | test_* | t_* | test | t
        rule-2 | test_1_bak | t_1_bak | test | t_bak
        """,
        {"test_1_bak.t_1_bak": "test.t_bak", "test_1_bak.t_2": "test.t"},
        differs=ONE_ONLY,
    ),
    Row(
        "a longer beginning beats a shorter one",
        OLD_TEST + ", multiple table level rules",
        """
        a | test_1_* | test* | t2 | test
        b | test_1_* | tes* | other | other
        """,
        {"test_1_a.test": "t2.test", "test_1_a.tesa": "other.other"},
        differs=ONE_ONLY,
    ),
    Row(
        "of rules without table-pattern too",
        OLD_TEST + ", multiple schema level rules",
        """
        a | test_1_* | - | one | -
        b | test_* | - | all | -
        c | test_1_7 | - | seven | -
        """,
        {"test_1_a.t": "one.t", "test_2.t": "all.t", "test_1_7.t": "seven.t"},
        differs=ONE_ONLY,
    ),
    Row(
        "a character beats […], that beats ?, that beats *",
        ROUTE,
        """
        any | s | t_* | s | any
        one | s | t_? | s | one
        range | s | t_[0-9] | s | range
        mixed | s | t_1* | s | mixed
        """,
        {
            "s.t_1": "s.mixed",
            "s.t_2": "s.range",
            "s.t_x": "s.one",
            "s.t_xx": "s.any",
            "s.t_": "s.any",
            "s.t_12": "s.mixed",
        },
        differs=ONE_ONLY,
    ),
    Row(
        "read from the left: what comes first decides",
        ROUTE,
        """
        left | s | t1?* | s | left
        right | s | t??2 | s | right
        """,
        {"s.t112": "s.left", "s.t222": "s.right"},
        differs=ONE_ONLY,
    ),
    Row(
        "an exact name beats a regular expression",
        ROUTE,
        """
        exact | s | t_1 | s | exact
        expression | s | ~^t_1$ | s | expression
        """,
        {"s.t_1": "s.exact"},
        differs=ONE_ONLY,
    ),
    Row(
        "rules that agree on the target are no conflict",
        ROUTE,
        """
        a | s | ~^t | all | t
        b | s | t_* | all | t
        """,
        {"s.t_1": "all.t"},
        differs=ONE_ONLY,
    ),
    Row(
        "a wildcard and a regular expression",
        ROUTE_TEST + ", TestDupMatch",
        """
        a | s | ~^t | all | t
        b | s | t_* | all | u
        """,
        {"s.t_1": "-", "s.tx": "all.t"},
    ),
    Row(
        "two regular expressions, however much longer one is",
        ROUTE_TEST + ", TestDupMatch",
        """
        a | ~test[0-9]+.* | ~.* | dtest1 | -
        b | ~test2?[ab] | ~tbl2 | dtest2 | dtable2
        """,
        {"test2a.tbl2": "-", "test2a.tbl1": "dtest1.tbl1"},
    ),
    Row(
        "a wildcard and a regular expression of schemas",
        ROUTE_TEST + ", TestDupMatch",
        """
        a | mytest* | - | mytest | -
        b | ~mytest(_meta)?_schema | - | test | -
        """,
        {"mytest_meta_schema.t": "-", "mytest_1.t": "mytest.t"},
    ),
    Row(
        "the narrower schema against the narrower table",
        ROUTE,
        """
        schema | s_1 | t_* | all | a
        table | s_* | t_1 | all | b
        """,
        {"s_1.t_1": "-", "s_1.t_2": "all.a", "s_2.t_1": "all.b"},
    ),
    Row(
        "two ranges in one place, even if one holds the other",
        ROUTE,
        """
        wide | s | t_[0-9] | all | a
        narrow | s | t_[12] | all | b
        """,
        {"s.t_1": "-", "s.t_3": "all.a"},
    ),
    Row(
        "targets that differ by the name that is kept",
        ROUTE,
        """
        a | s | ~^t | all | -
        b | s | t_* | all | t_1
        """,
        {"s.t_1": "all.t_1", "s.t_2": "-"},
        differs=ONE_ONLY,
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.says)
def test_where_tables_go(row: Row) -> None:
    compiled = router(row.routes.replace("\\|", "|"), row.case_sensitive)

    def target(name: str) -> str:
        try:
            route = compiled.route(*name.split("."))
        except ShardmergeError as error:
            assert error.spec is errors.config.AMBIGUOUS_ROUTE
            assert {"mysql-01", *name.split(".")} <= set(error.values.values())
            return "-"
        return f"{route.target_schema}.{route.target_table}"

    assert {name: target(name) for name in row.targets} == row.targets, f"{row.source} {row.differs}"


def test_a_conflict_names_all_routes_that_nothing_beats_and_no_other() -> None:
    """The beaten one is not at fault."""
    compiled = router(
        """
        wide | s | t* | all | t
        b | s | t_* | all | u
        a | s | ~^t_ | all | v
        c | s | ~_1$ | all | v
        """
    )
    with pytest.raises(ShardmergeError) as caught:
        compiled.route("s", "t_1")
    assert caught.value.code == 11003
    assert caught.value.values["rules"] == "a, b, c"


class Extract(NamedTuple):
    says: str
    source: str
    of: str
    pattern: str
    text: str
    differs: str = ""


NAMES = {"source": "source_s1_S2", "schema": "test_11", "table": "T_9"}

EXTRACTS = [
    Extract("the part after the prefix", DOCS + ", Extract table, schema, and source", "schema", "test_(.*)", "11"),
    Extract("the whole name", DOCS + ", Extract table, schema, and source", "source", "(.*)", "source_s1_S2"),
    Extract("groups one after the other", ROUTE_TEST + ", TestFetchExtendColumn", "source", "source_(.*)_(.*)", "s1S2"),
    Extract("nothing found", EXTRACT, "schema", "shop_(.*)", ""),
    Extract("found, but no group", EXTRACT, "schema", "test_.*", "", differs="here a file that says so is refused"),
    Extract("a group that takes no part", EXTRACT, "schema", "test_(x)?(1)", "1"),
    Extract("a group within a group counts too", EXTRACT, "schema", "((1)1)", "111"),
    Extract("a group without number", EXTRACT, "schema", "(?:test)_(1)", "1"),
    Extract("searched anywhere, the leftmost place counts", EXTRACT, "source", "s([0-9])", "1"),
    Extract(
        "the name as it is written",
        "tidb pkg/util/regexpr-router/regexpr_router.go, FetchExtendColumn",
        "table",
        "(.*)",
        "T_9",
    ),
    Extract("case counts, whatever case-sensitive says", EXTRACT, "table", "t_(.*)", ""),
    Extract("unless the expression says so", EXTRACT, "table", "(?i)t_(.*)", "9"),
]


@pytest.mark.parametrize("row", EXTRACTS, ids=lambda row: row.says)
@pytest.mark.parametrize("table_pattern", ["t_*", ""], ids=["table rule", "schema rule"])
def test_what_a_column_gets(row: Extract, table_pattern: str) -> None:
    rule = pb.RouteRule(name="r", schema_pattern="test_*", table_pattern=table_pattern, target_schema="test")
    extract = pb.ExtractColumn(pattern=row.pattern, target_column="c")
    {"table": rule.extract_table, "schema": rule.extract_schema, "source": rule.extract_source}[row.of].CopyFrom(
        extract
    )
    compiled = Router.from_config(pb.SubTaskConfig(source_id=NAMES["source"], routes=[rule]))
    assert compiled.route(NAMES["schema"], NAMES["table"]).extracts == (Extracted("c", row.text),), (
        f"{row.source} {row.differs}"
    )
