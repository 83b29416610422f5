"""Transforms in Python: which functions are loaded, what they must return, and what errors show."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pyarrow as pa
import pytest

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.core.lane_hash import Bucket
from shardmerge.worker.core.row_change import ChangeKind, RowChange
from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, ComputedValue, PythonFunction, RowTransform, TablePlan
from shardmerge.worker.rules.python import allowed_modules
from shardmerge.worker.rules.python.functions import Unusable, load
from shardmerge.worker.rules.python.results import BadResult, Outputs, checked, output_arrow_type
from shardmerge.worker.rules.python.transformer import PythonTransformer
from shardmerge.worker.rules.stage.row_stage import RowStage
from shardmerge.worker.rules.stage.server_filter import ServerFilter
from shardmerge.worker.rules.transform.values import computed_column
from shardmerge.worker.rules.transform_rules import Transforms
from tests.support.plans import integer, table_plan, text

MODULE = "tests.support.own_functions"
BIGINT = computed_column("doubled", "bigint", nullable=True)


@pytest.fixture(autouse=True)
def _allowed() -> Iterator[None]:
    allowed_modules.use([MODULE])
    yield
    allowed_modules.use([])


def plan(name: str, output: Column = BIGINT, *, has_filter: bool = False) -> TablePlan:
    """(id, n) with a column that the function computes of n."""
    made = table_plan((integer(), replace(integer(), name="n")), (0,))
    function = PythonFunction(MODULE, name, has_filter)
    columns = (*made.columns, ColumnPlan(-1, output, output.name, ComputedValue("bigint")))
    condition = str(function) if has_filter else ""
    return replace(made, columns=columns, transform=RowTransform("t", condition, (1,), True, function))


def computed(made: TablePlan, *rows: int) -> list[bytes]:
    assert made.transform is not None and made.transform.python is not None
    transformer = PythonTransformer(made, made.transform.python)
    [column] = transformer.computed([(b"%d" % n,) for n in rows], lambda at: f"p{at}", lambda _: "secret key").columns
    return column


# -- loading


def test_a_function_of_the_module_is_loaded() -> None:
    assert load(PythonFunction(MODULE, "twice", False)).__name__ == "twice"


@pytest.mark.parametrize(
    "name", ["kill", "run", "removedirs", "clock", "time", "pa", "nothing", "__loader__", "wants_two", "later"]
)
def test_nothing_else_is(name: str) -> None:
    """Above all not what the module has imported: its operator has allowed the module, not these."""
    with pytest.raises(Unusable):
        load(PythonFunction(MODULE, name, False))


def test_a_module_that_does_not_exist() -> None:
    with pytest.raises(Unusable, match="ModuleNotFoundError"):
        load(PythonFunction("no_such_module.at_all", "f", False))


# -- results


def test_results() -> None:
    outputs = Outputs((BIGINT, computed_column("t", "varchar(3)", nullable=True)), has_filter=True)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([True, None, False]), pa.array([1, 2, None], pa.int64()), pa.array(["a'b", None, "abc"])],
        names=["x", "y", "z"],
    )
    assert checked(batch, 3, outputs) == (
        [True, False, False],
        [[b"1", b"NULL", b"NULL"], [b"'a\\'b'", b"NULL", b"NULL"]],
    )


@pytest.mark.parametrize(
    ("returned", "output", "reason"),
    [
        (pa.array([1, 2], pa.int64()), BIGINT, "column doubled has 2 values for 1 rows"),
        (pa.array([1], pa.int32()), BIGINT, "column doubled is of type int32 instead of int64"),
        ([pa.array([1], pa.int64())] * 2, BIGINT, "it has 2 columns instead of 1"),
        (None, BIGINT, "it is a NoneType, not an Arrow array or record batch"),
        (pa.array([None], pa.int64()), replace(BIGINT, nullable=False), "column doubled is NOT NULL, and has a NULL"),
        (
            pa.array(["abcd"]),
            computed_column("doubled", "varchar(3)", nullable=True),
            "column doubled has a text of 4 characters instead of 3",
        ),
        (
            pa.array([float("inf")]),
            computed_column("doubled", "double", nullable=True),
            "column doubled has a value that no table can hold",
        ),
    ],
)
def test_bad_results(returned: object, output: Column, reason: str) -> None:
    with pytest.raises(BadResult) as caught:
        checked(returned, 1, Outputs((output,), has_filter=False))
    assert str(caught.value) == reason


def test_a_null_for_a_row_that_the_target_does_not_get_is_none() -> None:
    returned = [pa.array([False]), pa.array([None], pa.int64())]
    assert checked(returned, 1, Outputs((replace(BIGINT, nullable=False),), has_filter=True)) == ([False], [[b"NULL"]])


@pytest.mark.parametrize(
    ("spark", "arrow"),
    [
        ("boolean", pa.bool_()),
        ("int", pa.int32()),
        ("decimal(12,2)", pa.decimal128(12, 2)),
        ("timestamp_ntz", pa.timestamp("us")),
        ("varchar(9)", pa.string()),
        ("binary", pa.binary()),
    ],
)
def test_arrow_types(spark: str, arrow: pa.DataType) -> None:
    assert output_arrow_type(computed_column("c", spark, nullable=True)) == arrow


# -- rows


def test_rows_are_computed() -> None:
    assert computed(plan("twice"), *range(20000)) == [b"%d" % (2 * n) for n in range(20000)]


@pytest.mark.parametrize(
    ("name", "rows", "spec", "shown"),
    [
        ("unlucky", [1] * 37 + [13], errors.replicate.FUNCTION_RAISED, ("p37", "ValueError")),
        ("exits", [1], errors.replicate.FUNCTION_RAISED, ("p0", "SystemExit")),
        ("one_too_many", [1, 2], errors.replicate.FUNCTION_RESULT, ("p0", "2 values for 1 rows")),
        ("other_type", [1, 2], errors.replicate.FUNCTION_RESULT, ("p0", "string instead of int64")),
        ("no_array", [1, 2], errors.replicate.FUNCTION_RESULT, ("p0", "int, not an Arrow array")),
        ("nothing", [1], errors.replicate.FUNCTION_UNUSABLE, ("nothing", "defines no function")),
    ],
)
def test_errors_name_the_function_and_no_value(
    name: str, rows: list[int], spec: ErrorSpec, shown: tuple[str, ...]
) -> None:
    with pytest.raises(ShardmergeError) as caught:
        computed(plan(name), *rows)
    message = str(caught.value)
    assert caught.value.spec is spec
    assert "secret" not in message
    assert all(part in message for part in (f"{MODULE}:{name}", "shop_01.order_01", *shown))


def test_a_null_of_a_column_without_null_names_its_row() -> None:
    with pytest.raises(ShardmergeError) as caught:
        computed(plan("null_of_zero", replace(BIGINT, nullable=False)), 1, 2, 0, 3)
    assert caught.value.spec is errors.replicate.FUNCTION_RESULT
    assert caught.value.values["position"] == "p2"


def test_a_date_that_arrow_lacks_is_no_value_in_the_message() -> None:
    made = plan("twice")
    date = Column("n", ValueKind.DATE, "date", nullable=True)
    table = replace(made.table, columns=(made.table.columns[0], date))
    with pytest.raises(ShardmergeError) as caught:
        made = replace(made, table=table)
        assert made.transform is not None and made.transform.python is not None
        PythonTransformer(made, made.transform.python).computed([(b"0000-00-00",)], lambda at: at, str)
    assert caught.value.spec is errors.replicate.FUNCTION_RESULT
    assert "0000" not in str(caught.value)


def test_a_filter_makes_a_view() -> None:
    made = RowStage(cast(ServerFilter, None), Bucket(0, 1))
    with_filter = plan("positive_twice", has_filter=True)
    made.set_plans([with_filter])
    decoded = made.decoded_by(with_filter)
    row = {n: (b"7", b"%d" % n) for n in (-1, 1, 2)}
    changes = [
        RowChange(0, 0, ChangeKind.INSERT, decoded, (), row[-1]),
        RowChange(1, 1, ChangeKind.UPDATE, decoded, row[-1], row[1]),
        RowChange(2, 2, ChangeKind.UPDATE, decoded, row[1], row[2]),
        RowChange(3, 3, ChangeKind.UPDATE, decoded, row[2], row[-1]),
    ]
    found, _ = made.evaluate(changes, lambda change: change.byte)
    assert [(change.kind, change.before[2:], change.after[2:]) for change in found] == [
        (ChangeKind.INSERT, (), (b"2",)),
        (ChangeKind.UPDATE, (b"2",), (b"4",)),
        (ChangeKind.DELETE, (b"4",), ()),
    ]


# -- the rule in the driver


def rule(name: str, **changed: object) -> pb.Transform:
    values: dict[str, object] = {
        "name": "t",
        "schema_pattern": "s",
        "python": f"{MODULE}:{name}",
        "columns": ["N"],
        "outputs": [pb.TransformOutput(name="doubled", type="bigint", nullable=True)],
        **changed,
    }
    return pb.Transform(**values)  # pyright: ignore[reportArgumentType] - fields by name


def of_table(made: pb.Transform) -> tuple[RowTransform, tuple[ColumnPlan, ...]]:
    table = table_plan((integer(), replace(integer(), name="n"), text("v")), (0,)).table
    table = replace(table, schema="s", name="t")
    found = Transforms.from_config(pb.SubTaskConfig(source_id="s1", transforms=[made])).of_table(table, {})
    assert found is not None
    return found


def test_a_table_s_columns() -> None:
    transform, columns = of_table(rule("twice"))
    assert transform == RowTransform("t", "", (1,), True, PythonFunction(MODULE, "twice", False))
    assert [column.target_name for column in columns] == ["id", "n", "v", "doubled"]
    replaced = rule("twice", outputs=[pb.TransformOutput(name="N", type="bigint", nullable=False)])
    assert [(column.target_name, column.is_computed) for column in of_table(replaced)[1]] == [
        ("id", False),
        ("v", False),
        ("N", True),
    ]


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (rule("twice", columns=["x"]), "the table has no column x"),
        (rule("kill"), f"module {MODULE} defines no function kill"),
        (rule("other_type"), "is of type string instead of int64, for an empty batch"),
        (rule("one_too_many"), "has 1 values for 0 rows, for an empty batch"),
        (rule("exits"), "raises SystemExit, for an empty batch"),
        (rule("twice", columns=["v"]), "raises KeyError, for an empty batch"),
        (rule("twice", outputs=[pb.TransformOutput(name="id", type="bigint")]), "column id of the key"),
    ],
)
def test_rules_that_are_refused(made: pb.Transform, reason: str) -> None:
    with pytest.raises(ShardmergeError) as caught:
        of_table(made)
    assert caught.value.spec is errors.config.TRANSFORM_REFUSED
    assert reason in str(caught.value)


@pytest.mark.parametrize("python", ["os:system", "subprocess:run", "no_such_module:f", f"{MODULE}.more:f"])
def test_only_modules_of_the_worker_s_file_are_imported(python: str) -> None:
    before = set(sys.modules)
    with pytest.raises(ShardmergeError) as caught:
        of_table(rule("twice", python=python))
    assert caught.value.spec is errors.config.MODULE_NOT_ALLOWED
    assert f"transform-modules: [{python.partition(':')[0]}]" in caught.value.workaround
    assert set(sys.modules) == before


def test_nothing_is_allowed_by_default() -> None:
    allowed_modules.use([])
    with pytest.raises(ShardmergeError) as caught:
        of_table(rule("twice"))
    assert caught.value.spec is errors.config.MODULE_NOT_ALLOWED
