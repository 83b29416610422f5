"""Column mappings: each row is a sentence of TiDB DM's documentation or of its code, which it names; ``differs`` says
where this program decides otherwise on purpose.

DM's documentation is its page "Data Replication Features", Column mapping (up to version 1.0: later ones refuse the
key); its code is tiflow's pkg/column-mapping/column.go.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.binlog.rows.row_literals import RowWriter
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.rules import Rules
from tests.support.plans import integer, text

RESTRICTIONS = 'docs v1.0 "Column mapping", partition id restrictions'
ARGUMENTS = 'docs v1.0 "Column mapping", partition id arguments configuration'
LAYOUT = 'docs v1.0 "Column mapping", partition id expression rules'
EXAMPLE = 'docs v1.0 "Column mapping", Usage example'
NOTE = 'docs v1.0 "Column mapping", Note'
COMPUTE = "tiflow pkg/column-mapping/column.go, computeID"
VALUE = "tiflow pkg/column-mapping/column.go, partitionID"
PREFIX = "tiflow pkg/column-mapping/column.go, addPrefix"
QUERY = "tiflow pkg/column-mapping/column.go, queryColumnInfo"
TEST = "tiflow pkg/column-mapping/column_test.go"

EVERY = 'there 44 bits are the limit whatever is left out, against the documentation ("≥44 bits")'


def rule(
    expression: str,
    *arguments: str,
    column: str = "id",
    name: str = "r",
    schema: str = "*",
    table: str = "*",
) -> pb.ColumnMappingRule:
    return pb.ColumnMappingRule(
        name=name,
        schema_pattern=schema,
        table_pattern=table,
        source_column=column,
        target_column=column,
        expression=expression,
        arguments=arguments,
    )


def planned(
    *rules: pb.ColumnMappingRule, names: str = "s_1.t_1", column: Column | None = None, case_sensitive: bool = False
) -> TablePlan:
    schema, name = names.split(".")
    columns = (column or integer(), text("v"), text("w"))
    table = Table(schema, name, columns, (0,), "PRIMARY", (("id",),), False, "InnoDB")
    subtask = pb.SubTaskConfig(source_id="mysql-01", case_sensitive=case_sensitive, column_mappings=rules)
    return Rules.from_config(subtask).plan(0, "mysql-01", table)


class Row(NamedTuple):
    """``id`` of the table ``names`` becomes ``merged``, or the error."""

    says: str
    source: str
    arguments: list[str]
    names: str
    id: int
    merged: int | ErrorSpec
    differs: str = ""
    case_sensitive: bool = False


THREE = ["1", "s_", "t_"]
FOUR = ["1", "s", "t", "_"]
NAME = errors.config.PARTITION_NAME
OVERFLOW = errors.config.ID_OVERFLOW

ROWS = [
    Row("the documentation's first example", EXAMPLE, ["1", "test", "t", "_"], "test_1.t_1", 1, 580981944116838401),
    Row("its second one", EXAMPLE, ["2", "test", "t", "_"], "test_1.t_2", 2, 1157460288606306306),
    Row("three arguments: no separator", ARGUMENTS, THREE, "s_2.t_3", 7, 1 << 59 | 2 << 52 | 3 << 44 | 7),
    Row(
        "a separator of several characters",
        ARGUMENTS,
        ["1", "s", "t", "_x_"],
        "s_x_2.t_x_3",
        7,
        1 << 59 | 2 << 52 | 3 << 44 | 7,
    ),
    Row("an empty separator", ARGUMENTS, ["1", "s", "t", ""], "s2.t3", 7, 1 << 59 | 2 << 52 | 3 << 44 | 7),
    Row("no instance", LAYOUT, ["", "s_", "t_"], "s_2.t_3", 7, 2 << 56 | 3 << 48 | 7),
    Row("no schema", LAYOUT, ["1", "", "t_"], "s_2.t_3", 7, 1 << 59 | 3 << 51 | 7),
    Row("no table", LAYOUT, ["1", "s_", ""], "s_2.t_3", 7, 1 << 59 | 2 << 52 | 7),
    Row("table alone", LAYOUT, ["", "", "t_"], "s_2.t_3", 7, 3 << 55 | 7),
    Row("schema alone", LAYOUT, ["", "s_", ""], "s_2.t_3", 7, 2 << 56 | 7),
    Row("instance alone", LAYOUT, ["15", "", ""], "any.thing", 7, 15 << 59 | 7),
    Row(
        "a part left out asks nothing of the name", ARGUMENTS, ["1", "", "t_"], "whatever.t_3", 7, 1 << 59 | 3 << 51 | 7
    ),
    Row(
        "a separator beside parts left out",
        TEST + ", TestComputePartitionID",
        ["2", "", "t", "_"],
        "s.t_1",
        0,
        2 << 59 | 1 << 51,
    ),
    Row("instance 0 is an instance", RESTRICTIONS, ["0", "s_", "t_"], "s_1.t_1", 7, 1 << 52 | 1 << 44 | 7),
    Row("a schema that is its prefix is 0", RESTRICTIONS, FOUR, "s.t_3", 7, 1 << 59 | 3 << 44 | 7),
    Row("a table that is its prefix is 0", RESTRICTIONS, FOUR, "s_5.t", 7, 1 << 59 | 5 << 52 | 7),
    Row(
        "without separator too", TEST + ", TestComputePartitionID", ["2", "test_", "t_", ""], "test_.t_", 7, 2 << 59 | 7
    ),
    Row(
        "leading zeros carry nothing",
        COMPUTE + ", ParseUint",
        FOUR,
        "s_002.t_0000000000003",
        7,
        1 << 59 | 2 << 52 | 3 << 44 | 7,
    ),
    Row("the highest numbers", RESTRICTIONS, ["15", "s_", "t_"], "s_127.t_255", (1 << 44) - 1, (1 << 63) - 1),
    Row("the id 0", VALUE, THREE, "s_1.t_1", 0, 1 << 59 | 1 << 52 | 1 << 44),
    Row("schema 128", RESTRICTIONS, THREE, "s_128.t_1", 1, NAME),
    Row("table 256", RESTRICTIONS, THREE, "s_1.t_256", 1, NAME),
    Row("a number of many digits", COMPUTE + ", ParseUint", THREE, "s_99999999999999999999.t_1", 1, NAME),
    Row("instance 16", RESTRICTIONS, ["16", "s_", "t_"], "s_1.t_1", 1, NAME),
    Row("another name", TEST + ", unrelated", FOUR, "unrelated.t_6", 1, NAME),
    Row("the separator is missing", TEST + ", testx", ["2", "test", "t", "_"], "testx.t_3", 1, NAME),
    Row("it is doubled", COMPUTE, FOUR, "s__1.t_1", 1, NAME),
    Row("letters", RESTRICTIONS + ", s_a", FOUR, "s_a.t_1", 1, NAME),
    Row("hexadecimal digits", TEST + ", t_0xa", FOUR, "s_0.t_0xa", 1, NAME),
    Row("nothing after the separator", TEST + ", t_", FOUR, "s_0.t_", 1, NAME),
    Row("a minus", COMPUTE + ", ParseUint", FOUR, "s_-1.t_1", 1, NAME),
    Row("a plus", COMPUTE + ", ParseUint", FOUR, "s_+1.t_1", 1, NAME),
    Row("digits parted", COMPUTE + ", ParseUint", FOUR, "s_1_0.t_1", 1, NAME),
    Row("digits of another alphabet", COMPUTE + ", ParseUint", FOUR, "s_٣.t_1", 1, NAME),
    Row("a number high up", COMPUTE + ", ParseUint", FOUR, "s_².t_1", 1, NAME),
    Row("the prefix alone where it has the separator in it", COMPUTE, THREE, "s_1.t", 1, NAME),
    Row("an id of 44 bits and one more", RESTRICTIONS, THREE, "s_1.t_1", 1 << 44, OVERFLOW),
    Row("a negative id", RESTRICTIONS, THREE, "s_1.t_1", -1, OVERFLOW),
    Row("the lowest one", VALUE, THREE, "s_1.t_1", -(1 << 63), OVERFLOW),
    Row("one that is negative only in 64 signed bits", VALUE, THREE, "s_1.t_1", (1 << 64) - 1, OVERFLOW),
    Row(
        "a larger id where a part is left out",
        LAYOUT,
        ["1", "s_", ""],
        "s_1.t",
        (1 << 52) - 1,
        (1 << 59) + (2 << 52) - 1,
        differs=EVERY,
    ),
    Row("but not larger than the bits that are left", LAYOUT, ["1", "s_", ""], "s_1.t", 1 << 52, OVERFLOW),
    Row("the largest of all layouts", LAYOUT, ["15", "", ""], "s.t", (1 << 59) - 1, (1 << 63) - 1, differs=EVERY),
    Row(
        "case of prefixes does not count where that of names does not",
        QUERY,
        ["1", "S_", "t_"],
        "s_2.T_3",
        7,
        1 << 59 | 2 << 52 | 3 << 44 | 7,
        differs="there the name becomes lower case and the prefix does not: S_ fits no schema",
    ),
    Row("case-sensitive: true", QUERY, ["1", "S_", "t_"], "s_2.t_3", 7, NAME, case_sensitive=True),
    Row("and for a name that is its prefix", COMPUTE, FOUR, "S.t_3", 7, NAME, case_sensitive=True),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.says)
def test_partition_id(row: Row) -> None:
    given = rule("partition id", *row.arguments)
    why = f"{row.source} {row.differs}"

    def literals() -> tuple[bytes, ...]:
        plan = planned(given, names=row.names, case_sensitive=row.case_sensitive)
        return RowWriter(plan, "mysql-01").literals([b"%d" % row.id, None, None])

    if isinstance(row.merged, int):
        assert literals()[0] == b"%d" % row.merged, why
        return
    with pytest.raises(ShardmergeError) as caught:
        literals()
    assert caught.value.spec is row.merged, why
    schema, name = row.names.split(".")
    assert {"mysql-01", schema, name} <= set(caught.value.values.values())


class Mapped(NamedTuple):
    """The text ``v`` becomes ``becomes``."""

    says: str
    source: str
    rules: list[pb.ColumnMappingRule]
    becomes: bytes | ErrorSpec
    names: str = "s_1.t_1"
    value: bytes | None = b"a"
    differs: str = ""
    case_sensitive: bool = False


def prefix(text: str, schema: str = "s_*", table: str = "t_*", name: str = "") -> pb.ColumnMappingRule:
    return rule("add prefix", text, column="v", name=name or text, schema=schema, table=table)


PREFIXES = [
    Mapped("add prefix", TEST + ", TestHandle", [prefix("instance_id:")], b"'instance_id:a'"),
    Mapped(
        "add suffix", "tiflow pkg/column-mapping/column.go, addSuffix", [rule("add suffix", ":z", column="v")], b"'a:z'"
    ),
    Mapped("of an empty text", PREFIX, [prefix("x")], b"'x'", value=b""),
    Mapped("NULL stays NULL", PREFIX, [prefix("x")], b"NULL", value=None, differs="there NULL is an error: no string"),
    Mapped("another table", TEST + ", TestHandle", [prefix("x")], b"'a'", names="s_1.u"),
    Mapped("case of patterns does not count", TEST + ", TestHandle", [prefix("x", schema="S_*")], b"'xa'"),
    Mapped(
        "case-sensitive: true", TEST + ", TestCaseSensitive", [prefix("x", schema="S_*")], b"'a'", case_sensitive=True
    ),
    Mapped(
        "case of the column's name never counts",
        "tiflow pkg/column-mapping/column.go, findColumnPosition",
        [rule("add prefix", "x", column="V")],
        b"'xa'",
        case_sensitive=True,
        differs="there it does, and the column is missing",
    ),
    Mapped(
        "no such column",
        QUERY + ", adjustColumnPosition",
        [rule("add prefix", "x", column="none")],
        errors.config.MAPPED_COLUMN_MISSING,
    ),
    Mapped(
        "a number",
        PREFIX,
        [rule("add prefix", "x")],
        errors.config.MAPPED_COLUMN_TYPE,
        differs="there each row is an error",
    ),
    Mapped("table rules beat schema rules", QUERY, [prefix("s", table=""), prefix("t", schema="*")], b"'ta'"),
    Mapped("schema rules alone", QUERY, [prefix("s", table=""), prefix("t")], b"'sa'", names="s_1.u"),
    Mapped("two on one column", NOTE, [prefix("x", name="a"), prefix("y", name="b")], errors.config.AMBIGUOUS_MAPPING),
    Mapped(
        "a prefix and a suffix of one column",
        NOTE,
        [prefix("x", name="a"), rule("add suffix", "y", column="v", name="b", schema="s_*", table="t_*")],
        errors.config.AMBIGUOUS_MAPPING,
    ),
    Mapped(
        "the most specific one of a column holds",
        NOTE,
        [prefix("x"), prefix("y", table="t_1"), prefix("z", table="t_1*")],
        b"'ya'",
        differs="there a table that two rules match stops the task",
    ),
    Mapped(
        "two that say the same of one column",
        NOTE,
        [prefix("x", name="a"), prefix("x", schema="~^s", name="b")],
        b"'xa'",
        differs="there a table that two rules match stops the task",
    ),
    Mapped(
        "regular expressions",
        "tiflow pkg/column-mapping/column.go, addOrUpdateRule",
        [prefix("x", schema="~^s_[0-9]$", table="~^t")],
        b"'xa'",
        differs="there patterns of column mappings are wildcards, and ~ is a character",
    ),
]


@pytest.mark.parametrize("row", PREFIXES, ids=lambda row: row.says)
def test_prefixes_suffixes_and_which_rule_holds(row: Mapped) -> None:
    why = f"{row.source} {row.differs}"

    def literals() -> tuple[bytes, ...]:
        plan = planned(*row.rules, names=row.names, case_sensitive=row.case_sensitive)
        return RowWriter(plan, "mysql-01").literals([b"1", row.value, None])

    if isinstance(row.becomes, bytes):
        assert literals()[1] == row.becomes, why
        return
    with pytest.raises(ShardmergeError) as caught:
        literals()
    assert caught.value.spec is row.becomes, why


def test_each_column_has_its_own_rules() -> None:
    """DM takes one rule of a table (``queryColumnInfo``): that of the column ``id`` would not hold."""
    plan = planned(
        rule("partition id", *THREE, table="", name="ids"),
        prefix("x"),
        rule("add suffix", "y", column="w", schema="s_1", table="t_1", name="w"),
    )
    found = RowWriter(plan, "mysql-01").literals([b"7", b"a", b"b"])
    assert found == (b"%d" % (1 << 59 | 1 << 52 | 1 << 44 | 7), b"'xa'", b"'by'")


@pytest.mark.parametrize(
    ("kind", "type_text"),
    [
        # There a text of digits is mapped, and a number with a point or a date is an error of each row.
        (ValueKind.STRING, "varchar(20)"),
        (ValueKind.DECIMAL, "decimal(20,0)"),
        (ValueKind.DATETIME, "datetime"),
    ],
)
def test_partition_id_is_for_integers(kind: ValueKind, type_text: str) -> None:
    """Docs v1.0 "Column mapping": only bigint."""
    with pytest.raises(ShardmergeError) as caught:
        planned(rule("partition id", *THREE), column=Column("id", kind, type_text, nullable=False))
    assert caught.value.spec is errors.config.MAPPED_COLUMN_TYPE
