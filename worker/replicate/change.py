"""What becomes otherwise for lanes that go on behind a barrier."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from worker.ddl.tables import TableScope
from worker.plan import TablePlan


@dataclass(frozen=True, slots=True)
class LaneChange:
    """The plans and the scope of the lanes from a barrier on, in the place of those before it.

    Travels in a stream's frame, pickled as the lanes' own task was: both come from the same driver.
    """

    plans: tuple[TablePlan, ...]
    scope: TableScope

    def to_bytes(self) -> bytes:
        return pickle.dumps(self)

    @staticmethod
    def from_bytes(data: bytes) -> LaneChange:
        found = pickle.loads(data)  # noqa: S301 - from the driver whose task the lane runs
        assert isinstance(found, LaneChange)  # noqa: S101 - for the type checker
        return found
