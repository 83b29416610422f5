"""The reader's thread never just ends, and subscribers learn that it has."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.common_pb2 import Stage
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Endpoint
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.fetch import fetcher
from shardmerge.worker.relay.model import AtHead, BlockData, PurgePolicy
from shardmerge.worker.relay.relay import Relay
from shardmerge.worker.relay.serve.subscription import subscribe
from tests.support.made_source import MadeSource
from tests.support.server_ids import unleased
from tests.support.wait import until
from tests.unit.worker.relay.rig import START, Rig

NOWHERE = Endpoint("127.0.0.1", 1, "nobody")


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    made = Relay(tmp_path / "relay", "s", NOWHERE, "mariadb", unleased(1), PurgePolicy())
    made.ensure_from(START)
    yield made
    made.stop()


def failure_of(relay: Relay) -> ShardmergeError:
    failure = until(relay.failure, "the relay stops for good")
    assert relay.status().stage == Stage.STAGE_PAUSED
    assert relay.status().error is failure
    return failure


def test_a_disk_that_fails_while_waited_for_stops_with_its_error(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> ShardmergeError:
        return errors.relay.DISK_FULL(source="s", directory="d")

    def broken(_: Path) -> bool:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fetcher.Fetcher, "_session", full)
    monkeypatch.setattr(fetcher, "has_space", broken)
    relay.start()
    failure = failure_of(relay)
    assert failure.spec is errors.relay.DISK_FAILED
    assert "Input/output error" in failure.message


@pytest.mark.parametrize("where", ["Appender", "EndWatch"])
def test_any_error_that_ends_the_thread_is_reported(relay: Relay, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def broken(*_: object) -> Callable[[], None]:
        raise RuntimeError("out of luck")

    with monkeypatch.context() as patch:
        patch.setattr(fetcher, where, broken)
        relay.start()
        failure = failure_of(relay)
    assert failure.spec is errors.relay.RELAY_CRASHED
    assert "out of luck" in failure.message
    relay.start()
    assert relay.failure() is None
    until(lambda: relay.status().error, "it tries to connect")
    assert relay.status().stage == Stage.STAGE_RUNNING


def test_a_subscription_serves_the_published_log_and_then_raises_the_error(tmp_path: Path) -> None:
    rig = Rig(tmp_path, MadeSource())
    rig.source.transaction(10)
    rig.fetch()
    why: list[ShardmergeError] = []
    items = subscribe(rig.log, rig.log.first().offset, None, None, StopSignal(), lambda: why[0] if why else None)
    assert isinstance(next(items), BlockData)
    assert isinstance(next(items), AtHead)
    rig.source.transaction(10)
    rig.disconnect()
    rig.fetch()
    why.append(errors.relay.ACCESS_DENIED(source="s", host="h", port=1, user="u", reason="locked", errno=4151))
    assert isinstance(next(items), BlockData)
    with pytest.raises(ShardmergeError) as caught:
        next(items)
    assert caught.value is why[0]
    beyond = subscribe(
        rig.log, RelayOffset(rig.log.head().offset.segment + 1, 4), None, None, StopSignal(), lambda: why[0]
    )
    with pytest.raises(ShardmergeError) as caught:
        next(beyond)
    assert caught.value is why[0]
    rig.appender.close()
