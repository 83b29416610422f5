"""How long a comparison waits for a server."""

from __future__ import annotations

from shardmerge.proto import errors
from shardmerge.worker.verify.compare.patience import Patience

_LOST = errors.relay.SOURCE_LOST(source="s", host="h", port=3306, reason="refused")


def test_it_waits_for_so_long_from_the_first_failure_in_a_row() -> None:
    now = [0.0]
    patience = Patience(300, lambda: now[0])
    pauses = [patience.pause(_LOST) for _ in range(6)]
    assert pauses == [0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    now[0] = 299.0
    assert patience.pause(_LOST) == 5.0
    patience.succeeded()
    now[0] = 500.0
    assert patience.pause(_LOST) == 0.4
    now[0] = 799.0
    assert patience.pause(_LOST) is not None
    now[0] = 800.0
    assert patience.pause(_LOST) is None


def test_what_a_task_does_not_retry_ends_it() -> None:
    assert Patience().pause(errors.relay.ACCESS_DENIED(source="s")) is None
