"""Checks random histories of sharding DDLs in both shard modes: two tasks, operators, restarts, moves, refusals."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulator.source_log import BrokenRuleError
from tests.support.examples import examples
from tests.unit.shard_ddl.history_events import draw_histories
from tests.unit.shard_ddl.history_world import HistoryWorld

COUNTS = ((1, 1), (2, 1), (2, 2), (1, 1, 1))
MODES = pytest.mark.parametrize("optimistic", [False, True], ids=["pessimistic", "optimistic"])


def _run(seed: int, *, optimistic: bool, operator: bool, same: bool) -> HistoryWorld:
    """A history to its end. Raises AssertionError with all its steps."""
    dice = random.Random(seed)
    world = HistoryWorld(dice, draw_histories(dice, dice.choice(COUNTS), same=same), optimistic=optimistic)
    try:
        for _ in range(dice.randrange(20, 200)):
            world.step(operator=operator)
        world.converge()
        world.check_waits()
        world.check_target()
        ended = all(task.is_done() for task in world.tasks.values())
        refused = any(subtask.error for task in world.tasks.values() for subtask in task.subtasks.values())
        if not ended:
            same = world.histories.same and not world.histories.adds_again
            same = same and not (world.has_gone_back() or world.is_renamed() or world.lacks_unique_index())
            if same and not operator and not refused:
                raise BrokenRuleError("equal histories wait for an operator")
            world.let_operator_end_it()
            world.check_target()
    except BrokenRuleError as error:
        tables = "\n".join(f"{table}" for tables in world.histories.tables for table in tables)
        raise AssertionError("\n".join([str(error), *world.trace, tables])) from error
    return world


@MODES
@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_equal_histories_end_without_an_operator(seed: int, *, optimistic: bool) -> None:
    """Except where the documentation names an operator: a column that is added again, tables whose rows between
    statements that lead back cannot be read, while another table has gone back, tables that wait and are renamed before
    their statements lead back, and tables at a unique index that another one has added and dropped again."""
    _run(seed, optimistic=optimistic, operator=False, same=True)


@MODES
@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_other_histories_end_or_show_what_they_wait_for(seed: int, *, optimistic: bool) -> None:
    _run(seed, optimistic=optimistic, operator=False, same=False)


@MODES
@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), same=st.booleans())
def test_an_operator_at_any_moment_leaves_no_endless_wait(seed: int, *, same: bool, optimistic: bool) -> None:
    _run(seed, optimistic=optimistic, operator=True, same=same)
