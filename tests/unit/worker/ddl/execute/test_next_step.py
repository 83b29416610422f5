"""Checks the next step of a statement that any source of a task may run once."""

from __future__ import annotations

import pytest

from shardmerge.worker.ddl.execute.run_once import Begun, NextStep, next_step_of_run


@pytest.mark.parametrize(
    ("befores", "is_recorded", "step"),
    [
        ((), False, NextStep.BEGIN),
        (("now",), False, NextStep.BEGIN),
        (("now", "before"), False, NextStep.HAS_RUN),
        # The owner before has run and recorded it while this source waited for the lock of the statement.
        ((), True, NextStep.HAS_RUN),
    ],
)
def test_a_statement_that_another_source_has_run_is_not_run_again(
    befores: tuple[str, ...], step: NextStep, *, is_recorded: bool
) -> None:
    others = [Begun("ALTER", before) for before in befores]
    assert next_step_of_run(NextStep.BEGIN, others, "now", is_recorded=is_recorded) is step
