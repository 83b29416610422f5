"""Checks sharding DDLs over two sources with their shard tables' rows, in every order of steps and with kills anywhere.

At every end the target holds what the shard tables hold (I1), each row was applied by one stream, once (I5), and each
statement ran once, after all rows that precede it and before all rows that follow it (I6); from every state an end can
be reached without an operator (I9).
"""

from __future__ import annotations

import itertools
import re

import pytest

from tests.simulator.source_log import ALL, History
from tests.simulator.worker_steps import Ways
from tests.unit.shard_ddl.shard_walk import STATEMENTS, Walk, walk

ORDERS = tuple(
    "".join("0" if at in of_first else "1" for at in range(10))
    for of_first in itertools.combinations(range(10), 5)
    if 0 in of_first
)
"""All orders of two tables' events; by symmetry the first event is always of the same table."""
MET = [
    pytest.param("0101010101", "two columns", 0, marks=pytest.mark.long),
    pytest.param("0011100110", "one for another", 1, marks=pytest.mark.long),
    pytest.param("0001101110", "there and back", 1, marks=pytest.mark.long),
    ("1000111100", "no change first", 0),
]
"""A selection of the orders: tables in parallel; both statements of a table in sequence; one table far ahead of the
other."""


@pytest.mark.parametrize(("order", "kind", "full"), MET)
def test_every_way_ends_well(order: str, kind: str, full: int) -> None:
    found = walk(order, kind, full=full).run()
    assert found.ends
    assert found.worlds > 100_000


@pytest.mark.parametrize(
    ("order", "rows"),
    [
        ("000", frozenset({0})),
        pytest.param("001101", frozenset({0}), marks=pytest.mark.long),
        pytest.param("010101", frozenset({2}), marks=pytest.mark.long),
    ],
)
def test_tables_without_rows_between_their_statements_are_parked_again(order: str, rows: frozenset[int]) -> None:
    """In the other walks they have rows there, and get a stream."""
    assert walk(order, rows=rows, tables=1).run().ends


@pytest.mark.grid
@pytest.mark.parametrize("number", range(len(ORDERS)))
def test_every_way_of_every_order_ends_well(number: int) -> None:
    """Walk each order with one of the statements in turn, and with either source in full."""
    kind = list(STATEMENTS)[number % len(STATEMENTS)]
    assert walk(ORDERS[number], kind, full=number // len(STATEMENTS) % 2).run().ends


@pytest.mark.grid
def test_every_way_ends_well_with_both_sources_in_full() -> None:
    history = History((STATEMENTS["two columns"],), (0,) * 5, ALL)
    assert Walk((history, history), None).run().ends


@pytest.mark.parametrize(
    ("ways", "said"),
    [(Ways(torn_look=True), "not what a worker does"), (Ways(forgets_begun=True), "twice (I6)")],
    ids=["torn look", "begun is forgotten"],
)
def test_what_is_carried_out_otherwise_is_seen(ways: Ways, said: str) -> None:
    """The simulator's test has more (test_simulator.py)."""
    with pytest.raises(AssertionError, match=re.escape(said)):
        walk("00000", tables=1, ways=ways).run()
