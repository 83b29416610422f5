"""What is concluded about the source, its relay, and the copy of a history."""

from __future__ import annotations

import pytest

from shardmerge.master.diagnosis.conclude import source_use, unknown_facts
from shardmerge.proto import config_pb2, errors, worker_pb2
from shardmerge.proto import diagnose_pb2 as pb
from shardmerge.proto.rpc.coded_errors import error_to_proto
from tests.unit.master.diagnosis.views import SECONDS, SOURCE, behind, ids, lane, one, sync, view

_IDLE = {"idle": 0.9, "read": 0.1}
_MIB = 1 << 20


def _relay(before: int | None, after: int | None, fetched: int, round_trip: float | None = 0.08) -> pb.RelayUse:
    return pb.RelayUse(
        unfetched_before=before, unfetched_after=after, fetched_bytes=fetched, round_trip=round_trip, source_moved=True
    )


def test_the_lag_of_the_relay_grows() -> None:
    seen = view(lane(0, _IDLE), lane(1, _IDLE), relay=_relay(20 * _MIB, 24 * _MIB, 4 * _MIB))
    assert ids(seen)[0] == "relay-behind"
    found = one("relay-behind", seen)
    assert found.figures["fetched_bytes_per_second"] == _MIB
    assert found.figures["growth_bytes_per_second"] == _MIB
    assert found.figures["round_trip_ms"] == pytest.approx(80)
    assert "lacks 24 MiB" in found.text and "its lag grows" in found.text and "80.0 ms" in found.text


def test_the_relay_catches_up() -> None:
    found = one("relay-behind", view(lane(0, _IDLE), relay=_relay(24 * _MIB, 20 * _MIB, 9 * _MIB, None)))
    assert "it has caught up in 20 s" in found.text
    assert "round trip to the source takes is not known" in found.text
    assert "round_trip_ms" not in found.figures


@pytest.mark.parametrize(
    "relay",
    [_relay(0, 5, 5), _relay(5, 0, 5), _relay(None, 5, 5), _relay(5, None, 5), pb.RelayUse()],
    ids=["just written", "fetched", "unknown before", "unknown after", "nothing known"],
)
def test_the_relay_is_not_the_cause(relay: pb.RelayUse) -> None:
    assert "relay-behind" not in ids(view(lane(0, _IDLE), relay=relay))


def test_a_relay_that_lags_while_the_lanes_are_busy_is_not_the_cause() -> None:
    assert "relay-behind" not in ids(view(lane(0, {"target": 1.0}), relay=_relay(5, 5, 5)))


def test_bytes_on_their_way_from_a_busy_source_are_no_cause() -> None:
    near = sync(1, oldest_ms=200, bytes_behind=300)
    assert ids(view(lane(0, _IDLE, changes=40), status=near, relay=_relay(300, 250, 4000))) == ["keeps-up"]


def test_a_relay_that_fetches_nothing_does_not_fall_behind() -> None:
    found = one("relay-behind", view(lane(0, _IDLE), relay=_relay(_MIB, _MIB, 0)))
    assert "it fetches 0 B/s, and nothing has arrived in this time" in found.text
    assert "growth_bytes_per_second" not in found.figures


# --- idle


def test_nothing_to_do() -> None:
    found = one("source-idle", view(lane(0, _IDLE), status=sync(1, synced=True)))
    assert "it writes nothing: there is nothing to do" in found.text
    other = view(lane(0, _IDLE, transactions=3), status=sync(1, synced=True), relay=pb.RelayUse(source_moved=True))
    assert "nothing that concerns the task" in one("source-idle", other).text


def test_a_source_that_writes_for_others_all_the_time() -> None:
    """Some of it is always not passed yet; the lanes only move their checkpoints."""
    near = sync(1, oldest_ms=300, bytes_behind=900)
    seen = view(lane(0, _IDLE, transactions=2), status=near, relay=pb.RelayUse(source_moved=True))
    assert ids(seen) == ["source-idle"]


def test_the_lag_of_a_transaction_that_was_applied_some_seconds_ago_is_over() -> None:
    seen = view(lane(0, _IDLE), status=sync(1, synced=True, lag_ms=60_000))
    assert seen.lag == 0
    assert ids(seen) == ["source-idle"]


def test_not_idle() -> None:
    assert "source-idle" not in ids(view(lane(0, {"target": 1.0}), status=sync(1, oldest_ms=300, bytes_behind=9)))
    assert "source-idle" not in ids(view(lane(0, _IDLE), status=behind(1)))
    assert "source-idle" not in ids(view(lane(0, _IDLE), status=sync(1, held_keys=1)))
    assert "source-idle" not in ids(view(lane(0, _IDLE), status=sync(1, synced=True, unknown="x")))
    assert "source-idle" not in ids(view(lane(0, _IDLE, changes=3, transactions=3), status=sync(1, synced=True)))


def test_a_comparison() -> None:
    assert "compare-running" in ids(view(lane(0, _IDLE), status=sync(1, synced=True), compared=True))
    assert "compare-running" not in ids(view(lane(0, _IDLE), status=sync(1, synced=True)))


# --- history


def _copy(shares: dict[str, float], throttle: str = "") -> pb.CopyUse:
    made = pb.CopyUse(throttle=throttle, readers=4)
    made.seconds.update({cause: share * 4 * SECONDS for cause, share in shares.items()})
    return made


_LOAD = worker_pb2.LoadStatus(progress="43.00 %", rows_per_second=12_000, eta_seconds=740, finished_rows=9)


def test_the_history_and_what_limits_it() -> None:
    found = one("history", view(status=_LOAD, copy=_copy({"read": 0.2, "write": 0.8})))
    assert "43.00 %, 12,000 rows/s, about 12m left" in found.text
    assert "20 % of their time reading the source, 80 % writing the target: the target limits it" in found.text
    assert found.figures["eta_seconds"] == 740
    reading = one("history", view(status=_LOAD, copy=_copy({"read": 0.9, "write": 0.1})))
    assert "reading limits it" in reading.text and "snapshot.threads" in reading.actions[0]


def test_a_copy_that_is_retried_names_the_error() -> None:
    conflict = errors.relay.SOURCE_CONFLICT(source="s", host="h", port=1, reason="Lock wait timeout", errno=1205)
    load = worker_pb2.LoadStatus(retried=error_to_proto(conflict))
    seen = view(status=load, copy=_copy({"wait": 1.0}))
    assert ids(seen) == ["copy-retried", "history"]
    found = one("copy-retried", seen)
    assert "[20105 source-lock-conflict] source s: h:1: Lock wait timeout" in found.text
    assert "LOCK TABLES" in found.actions[0]


def test_an_unknown_end_and_unknown_readers() -> None:
    seen = view(status=worker_pb2.LoadStatus(), copy=pb.CopyUse(readers=4))
    found = one("history", seen)
    assert "how long it takes is not known yet" in found.text
    assert "What limits it is not known" in found.text
    assert found.actions == ()
    assert unknown_facts([seen]) == [f"{SOURCE}: no reader of the history has reported while it was measured."]


def test_a_throttle_has_the_limit_of_the_task_file() -> None:
    config = config_pb2.SubTaskConfig(snapshot=config_pb2.SnapshotConfig(rows_per_second=2000, max_threads_running=20))
    reason = "snapshot.rows-per-second: the next chunk begins in 3.1 s"
    seen = view(status=_LOAD, copy=_copy({"read": 0.1, "write": 0.1, "throttle": 0.8}, reason), config=config)
    assert ids(seen) == ["throttle", "history"]
    found = one("throttle", seen)
    assert found.names == {"limit": "snapshot.rows-per-second"}
    assert found.figures == {"throttle_share": pytest.approx(0.8), "limit": 2000}
    assert "80 %" in found.text and reason not in found.text, "when the next chunk begins does not matter"
    assert "`snapshot.rows-per-second: 2000`, `snapshot.max-threads-running: 20`" in found.text
    assert "`dmctl update-task FILE`" in found.actions[0]
    config.mode = config_pb2.TASK_MODE_FULL
    [action] = one("throttle", seen).actions
    assert "update-task" not in action and "`dmctl stop-task" in action, "it is refused for this mode"


def test_a_busy_source_is_shown_with_its_load() -> None:
    reason = "snapshot.max-threads-running: 31 threads run at the source, the limit is 20"
    found = one("throttle", view(status=_LOAD, copy=_copy({"throttle": 1.0}, reason)))
    assert f"Now: {reason}." in found.text


def test_readers_that_wait_for_the_plan() -> None:
    found = one("history", view(status=_LOAD, copy=_copy({"read": 0.2, "write": 0.1, "wait": 0.7})))
    assert "70 % waiting until chunks are planned: planning limits it" in found.text
    assert "More readers do not help" in found.actions[0]
    few = one("history", view(status=_LOAD, copy=_copy({"read": 0.6, "write": 0.38, "wait": 0.02})))
    assert "planned" not in few.text and "reading limits it" in few.text


def test_a_limit_that_hardly_delays_is_not_reported() -> None:
    seen = view(status=_LOAD, copy=_copy({"read": 0.5, "write": 0.3, "throttle": 0.2}))
    assert ids(seen) == ["history"]
    assert "20 % waiting for the task's limits" in one("history", seen).text


def test_the_only_limit_is_the_one_that_throttles() -> None:
    """Also at a moment at which no reader waits for it."""
    config = config_pb2.SubTaskConfig(snapshot=config_pb2.SnapshotConfig(rows_per_second=2000))
    copy = _copy({"read": 0.1, "write": 0.1, "throttle": 0.8})
    found = one("throttle", view(status=_LOAD, copy=copy, config=config))
    assert (found.names, found.figures["limit"]) == ({"limit": "snapshot.rows-per-second"}, 2000)
    config.snapshot.max_threads_running = 5
    assert one("throttle", view(status=_LOAD, copy=copy, config=config)).names == {}


def test_a_throttle_whose_limit_is_not_known() -> None:
    found = one("throttle", view(status=_LOAD, copy=_copy({"throttle": 1.0})))
    assert found.names == {} and "limit" not in found.figures
    assert "no limit that this master knows" in found.text


# --- the use of a source


def test_what_a_source_spends_its_time_on() -> None:
    use = source_use(
        view(lane(0, {"target": 0.5, "idle": 0.5}, changes=80, transactions=4, commit=0.2), status=behind(1))
    )
    assert use is not None
    assert dict(use.shares) == {"target": pytest.approx(0.5), "idle": pytest.approx(0.5)}
    assert use.commit_ms == pytest.approx(200)
    assert use.lag_seconds == 60
    assert use.changes_per_second == 20


def test_figures_that_are_not_known_are_not_set() -> None:
    seen = view(lane(0, {}), status=sync(1, unknown="x"), target=pb.TargetLook())
    use = source_use(seen)
    assert use is not None
    for name in ("commit_ms", "lag_seconds", "bytes_behind", "round_trip_ms"):
        assert not use.HasField(name), name
    assert not use.shares
