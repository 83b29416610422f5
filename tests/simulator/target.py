"""Reads the rows of the simulated target."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tests.simulator.source_log import Event, Image, Key, RowEvent, at_target
from tests.simulator.worker_state import Shared, Written


def rows_of(rows: Collection[Written], log: Sequence[Event], shared: Shared) -> dict[Key, Image]:
    """Return the rows of a source's shard tables as they are now: statements have run since they were written."""
    found: dict[Key, Image] = {}
    texts = tuple(each.text for each in shared.ran)
    for key, at, ran, _ in rows:
        event = log[at]
        assert isinstance(event, RowEvent)
        assert event.image is not None
        found[key] = at_target(event.image, shared.columns[ran], texts[ran:])
    return found
