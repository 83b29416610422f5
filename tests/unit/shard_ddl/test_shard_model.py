"""Checks sharding DDLs over two sources with their shard tables' rows, in every order of steps and with kills anywhere.

At every end the target holds what the shard tables hold (I1), each row was applied by one stream, once (I5), and each
statement ran once, after all rows that precede it and before all rows that follow it (I6); from every state an end can
be reached without an operator (I9). test_simulator.py has long histories, in some of their orders.
"""

from __future__ import annotations

import re

import pytest

from tests.simulator.agent_steps import Ways
from tests.simulator.source_log import ALL, History
from tests.unit.shard_ddl.shard_walk import PLAIN, Walk

ADD, MODIFY, DROP = "ADD COLUMN a BIGINT", "MODIFY COLUMN id BIGINT", "DROP COLUMN a"
NO_ROWS: frozenset[int] = frozenset()


def walk(statements: tuple[str, ...], order: str, rows: frozenset[int] = ALL, ways: Ways = PLAIN) -> Walk:
    """Return a walk. ``order``: the table of each event of the first source; ``rows``: see :class:`History`. The other
    source has one table without rows."""
    tables = 1 + max(map(int, order))
    first = History((statements,) * tables, tuple(map(int, order)), rows)
    return Walk((first, History((statements,), (0,) * len(statements), NO_ROWS)), ways)


@pytest.mark.parametrize(
    ("statements", "order", "rows"),
    [
        ((ADD,), "000", ALL),
        ((ADD,), "010101", ALL),
        pytest.param((MODIFY,), "001110", ALL, marks=pytest.mark.long),
        pytest.param((ADD, DROP), "00", NO_ROWS, marks=pytest.mark.long),
    ],
)
def test_every_way_ends_well(statements: tuple[str, ...], order: str, rows: frozenset[int]) -> None:
    assert walk(statements, order, rows).run().ends


@pytest.mark.parametrize(
    ("ways", "said"),
    [(Ways(torn_look=True), "nothing leads to an end"), (Ways(forgets_begun=True), "twice (I6)")],
    ids=["torn look", "begun is forgotten"],
)
def test_what_is_carried_out_otherwise_is_seen(ways: Ways, said: str) -> None:
    """The simulator's test has more (test_simulator.py)."""
    with pytest.raises(AssertionError, match=re.escape(said)):
        walk((ADD,), "000", ways=ways).run()
