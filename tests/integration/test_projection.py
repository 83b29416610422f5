"""Tests how Spark's interpreter projects rows, in the form that lanes and chunk readers receive."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from shardmerge.proto import errors, relay_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.row_change import Literals
from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, ComputedValue, RowTransform
from shardmerge.worker.rules.transform.client import Evaluate, Transformer, as_stream
from shardmerge.worker.rules.transform.expressions import Expressions, RunExpressions
from shardmerge.worker.rules.transform.projection import evaluate
from shardmerge.worker.rules.transform.session import session
from shardmerge.worker.rules.transform.values import ROW
from tests.support.plans import integer, table_plan, text
from tests.support.transformed import computed_rows


@pytest.fixture(scope="module", autouse=True)
def _spark() -> Iterator[None]:
    """Start the JVM before gRPC's threads."""
    session()
    yield


GIVEN = (integer(), text("v"), Column("d", ValueKind.DATE, "date", nullable=True))


def served(compiled: RunExpressions) -> Evaluate:
    """Answer like the lane service for a running unit."""

    def asking(request: relay_pb2.EvaluateRequest) -> relay_pb2.EvaluateResponse:
        found = compiled.find(request.expressions)
        assert found is not None
        return evaluate(found, request.rows)

    return asking


def transformer(*items: str, condition: str = "", seen: Callable[[int], None] = lambda _: None) -> Transformer:
    """Return a transformer. ``seen``: called with the size of each request."""
    made = table_plan(GIVEN, (0,))
    columns = tuple(ColumnPlan(-1, integer(), f"x{at}", ComputedValue(item)) for at, item in enumerate(items))
    transform = RowTransform("t", condition, (0, 1, 2), has_star=False)
    plan = replace(made, columns=columns, key=(), transform=transform)
    compiled = RunExpressions()
    compiled.admit([plan])

    def asking(request: relay_pb2.EvaluateRequest) -> relay_pb2.EvaluateResponse:
        seen(len(request.rows))
        return served(compiled)(request)

    return Transformer(plan, asking)


def rows_of(*keys: int | None) -> list[Literals]:
    return [(b"NULL" if key is None else b"%d" % key, b"'w%d'" % (key or 0), b"'2020-02-29'") for key in keys]


@pytest.mark.parametrize(
    ("item", "literal"),
    [
        ("id + 1", b"8"),
        ("id > 6", b"1"),
        ("CAST(id AS TINYINT)", b"7"),
        ("CAST(id AS FLOAT) / 2", b"3.5"),
        ("CAST(0.1 AS FLOAT)", b"0.10000000149011612"),
        ("id / 2", b"3.5"),
        ("CAST(id AS DECIMAL(12,3)) / 2", b"3.500000"),
        ("CAST(id AS DECIMAL(38,0)) * -1", b"-7"),
        ('concat(v, "\'", chr(92))', b"'w7\\'\\\\'"),
        ("CAST(v AS VARCHAR(5))", b"'w7'"),
        ("CAST(v AS CHAR(4))", b"'w7  '"),
        ("CAST(v AS BINARY)", b"X'7737'"),
        ("date_add(d, 1)", b"'2020-03-01'"),
        ("CAST(d AS TIMESTAMP_NTZ)", b"'2020-02-29 00:00:00'"),
        ("CAST(id * 0.000001 AS TIMESTAMP)", b"'1970-01-01 00:00:00.000007'"),
        ("CAST(NULL AS STRING)", b"NULL"),
        # A repeated subexpression is computed once, in a separate step.
        ("nullif(id * 2, 15)", b"14"),
        ("nullif(concat(v, v), 'w7w7')", b"NULL"),
        ("CASE WHEN id BETWEEN 1 AND id * 2 THEN (id * 2) BETWEEN 14 AND 14 END", b"1"),
    ],
)
@pytest.mark.parametrize("condition", ["", "nullif(id, 0) > 1"])
def test_values(item: str, literal: bytes, condition: str) -> None:
    made = transformer(f"{item} AS x", condition=condition)
    assert computed_rows(made, rows_of(7)) == [(literal,)]
    # The second time all preparations exist.
    assert computed_rows(made, rows_of(7)) == [(literal,)]


def test_a_row_that_the_filter_leaves_out_is_not_evaluated() -> None:
    made = transformer("100 / id AS x", "100 / (100 / id) AS y", condition="id <> 0 AND 100 / id > 1")
    assert computed_rows(made, rows_of(0, 1, None, 100, 0, 50)) == [
        None,
        (b"100.0", b"1.0"),
        None,
        None,
        None,
        (b"2.0", b"50.0"),
    ]


def test_a_filter_alone_and_nothing_at_all() -> None:
    assert computed_rows(transformer(condition="v LIKE '%1'"), rows_of(1, 2, 11)) == [(), None, ()]
    assert computed_rows(transformer(), rows_of(1, 2)) == [(), ()]


@pytest.mark.parametrize(
    ("item", "rows", "row"),
    [
        ("1 / id AS x", rows_of(*range(1, 100), 0, *range(1, 100)), 99),
        ("id + 9223372036854775807 - id AS x", rows_of(0, 0, 1), 2),
        # These fail in Python: it has no such dates, and a table has no such numbers.
        ("date_add(d, CAST(id AS INT)) AS x", rows_of(0, 1, 2920000, 3), 2),
        ("CAST(CAST(id * 1000000 AS TIMESTAMP) AS TIMESTAMP_NTZ) AS x", rows_of(0, 1, 2920000, 3), 2),
        ("log(id) * 0 + double('NaN') AS x", rows_of(1), 0),
    ],
)
def test_the_row_without_a_result_is_named(item: str, rows: Sequence[Literals], row: int) -> None:
    with pytest.raises(ShardmergeError) as caught:
        computed_rows(transformer(item), rows)
    assert caught.value.spec is errors.replicate.TRANSFORM_FAILED
    assert (caught.value.values["key"], caught.value.values["position"]) == (str(row), str(row))


@pytest.mark.parametrize(
    "item",
    [
        "1 / n AS x",
        "CAST(elt(1 + n * 0, 'today') AS DATE) AS x",
        "CAST(elt(1, 'now') AS DATE) AS x",
        "CAST(n AS TINYINT) + n * 9223372036854775807 AS x",
        "CAST('a' AS INT) + n AS x",
        "no such thing",
    ],
)
def test_no_result_is_an_error_and_never_null(item: str) -> None:
    rows = pa.Table.from_arrays([pa.array([0, 1], pa.int32()), pa.array([7, 0], pa.int64())], names=[ROW, "n"])
    answer = evaluate(Expressions((), (item,), "", rows.schema), as_stream(rows))
    assert answer.refused
    assert not answer.rows


def test_an_error_is_reported_where_it_is_caught_alone() -> None:
    printed: list[logging.LogRecord] = []

    class Printed(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            printed.append(record)

    logger, handler = logging.getLogger("SQLQueryContextLogger"), Printed()
    logger.addHandler(handler)
    try:
        with pytest.raises(ShardmergeError):
            computed_rows(transformer("1 / id AS x"), rows_of(0))
    finally:
        logger.removeHandler(handler)
    assert not printed


def test_nothing_is_left_of_an_evaluation() -> None:
    """No memory of Arrow, which no garbage collector frees, and no files; no job was started."""
    jvm: Any = session()._jvm
    arrow: Any = jvm.org.apache.spark.sql.util.ArrowUtils
    tracker = session().sparkContext.statusTracker()
    made = transformer("1 / id AS x")
    assert len(computed_rows(made, rows_of(*range(1, 5000)))) == 4999
    for _ in range(3):
        with pytest.raises(ShardmergeError):
            computed_rows(made, rows_of(*range(1, 5000), 0))
    assert arrow.rootAllocator().getAllocatedMemory() == 0
    assert computed_rows(made, rows_of(4)) == [(b"0.25",)]
    assert arrow.rootAllocator().getAllocatedMemory() == 0
    assert not tracker.getJobIdsForGroup(None)


@pytest.mark.parametrize(
    ("rows", "size", "asked"), [(20000, 10, 3), (11, 1 << 20, 4), (2, 6 << 20, 2), (1, 6 << 20, 1)]
)
def test_questions_have_a_size(rows: int, size: int, asked: int) -> None:
    sizes: list[int] = []
    made = transformer("concat(id, '-', length(v)) AS x", condition="id <> 1", seen=sizes.append)
    found = computed_rows(made, [(b"%d" % at, b"'%s'" % (b"x" * size), b"NULL") for at in range(rows)])
    assert found == [(b"'%d-%d'" % (at, size),) if at != 1 else None for at in range(rows)]
    assert len(sizes) == asked
    assert max(sizes) < max(5 << 20, size + (1 << 20))


def test_threads_do_not_meet() -> None:
    made = transformer("concat(v, id * 2) AS x", condition="id % 2 = 0")
    found: dict[int, Sequence[Literals | None]] = {}
    ready = threading.Barrier(4)

    def ask(number: int) -> None:
        rows = rows_of(*range(number * 10000, number * 10000 + 5000))
        for _ in range(12):
            ready.wait(300)
            found[number] = computed_rows(made, rows)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    for number in range(4):
        keys = range(number * 10000, number * 10000 + 5000)
        assert found[number] == [(b"'w%d%d'" % (key, key * 2),) if key % 2 == 0 else None for key in keys]
