"""Tests that a subscription which waits at the head looks at once when it is woken, and not at its next look."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

import pytest

from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.model import AtHead, ReachedUntil, SubscriptionItem
from shardmerge.worker.relay.serve import subscription
from shardmerge.worker.relay.serve.subscription import subscribe
from shardmerge.worker.replicate.alignment import StreamAlignment
from tests.support.made_source import MadeSource
from tests.unit.worker.relay.rig import Rig

_LOOK_SECONDS = 60.0
_PATIENCE_SECONDS = 20.0


class Waiting:
    """A subscription in a thread of its own that has reached the head. It looks by itself only after a minute."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(subscription, "IDLE_SECONDS", _LOOK_SECONDS)
        monkeypatch.setattr(subscription, "STOP_CHECK_SECONDS", _LOOK_SECONDS)
        source = MadeSource()
        source.transaction(30)
        rig = Rig(directory, source)
        rig.fetch()
        self.head = rig.log.head().offset
        self.alignment = StreamAlignment(lambda: rig.log.head().offset, rig.log.wake)
        self.stop = StopSignal()
        self.stop.call_when_set(rig.log.wake)
        self._items: queue.Queue[SubscriptionItem | None] = queue.Queue()
        items = subscribe(
            rig.log, rig.log.first().offset, None, None, self.stop, lambda: None, limit=self.alignment.limit
        )

        def read() -> None:
            for item in items:
                self._items.put(item)
            self._items.put(None)

        threading.Thread(target=read, daemon=True).start()
        while not isinstance(self.next(), AtHead):
            pass

    def next(self) -> SubscriptionItem | None:
        return self._items.get(timeout=_PATIENCE_SECONDS)


def test_a_requested_alignment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting(tmp_path, monkeypatch)
    waiting.alignment.request()
    reached = waiting.next()
    assert isinstance(reached, ReachedUntil)
    assert reached.offset == waiting.head
    assert waiting.head > RelayOffset(1, 0)


def test_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting(tmp_path, monkeypatch)
    waiting.stop.set()
    assert waiting.next() is None
