"""Sharding DDLs over two sources with their shard tables' rows, in every way that they can take, whoever is killed.

At every end the target holds what the shard tables hold (I1), each row was applied by one stream, once (I5), and each
statement ran once, behind all rows before it and before all rows behind it (I6); from every world an end can be reached
without an operator (I9).
"""

from __future__ import annotations

import itertools

import pytest

from tests.unit.shard.shard_log import ALL, History
from tests.unit.shard.shard_walk import STATEMENTS, Walk, walk

ORDERS = tuple(
    "".join("0" if at in of_first else "1" for at in range(10))
    for of_first in itertools.combinations(range(10), 5)
    if 0 in of_first
)
"""Of two tables' events, all: which of the tables has the first makes no difference."""
MET = [
    ("0101010101", "two columns", 0),
    ("0011100110", "one for another", 1),
    ("0001101110", "there and back", 1),
    ("1000111100", "no change first", 0),
]
"""Of the orders: side by side; statements of both behind one another; one table far ahead of the other."""


@pytest.mark.parametrize(("order", "kind", "full"), MET)
def test_every_way_ends_well(order: str, kind: str, full: int) -> None:
    found = walk(order, kind, full=full).run()
    assert found.ends
    assert found.worlds > 100_000


@pytest.mark.grid
@pytest.mark.parametrize("number", range(len(ORDERS)))
def test_every_way_of_every_order_ends_well(number: int) -> None:
    """By turns with each of the statements, and with either source in full."""
    kind = list(STATEMENTS)[number % len(STATEMENTS)]
    assert walk(ORDERS[number], kind, full=number // len(STATEMENTS) % 2).run().ends


@pytest.mark.grid
def test_every_way_ends_well_with_both_sources_in_full() -> None:
    history = History((STATEMENTS["two columns"],), (0,) * 5, ALL)
    assert Walk((history, history), None).run().ends
