"""What the lanes' time leads to: the cause with the largest share, or one lane that has all the work."""

from __future__ import annotations

import pytest

from shardmerge.proto import diagnose_pb2 as pb
from shardmerge.proto import worker_pb2
from shardmerge.proto.common_pb2 import ErrorDetail
from tests.unit.master.diagnosis.views import SECONDS, TASK, behind, findings, ids, lane, looked, one, sync, view

_TABLE = "`shop`.`orders`"
_IDLE = {"idle": 1.0}


def _hot(age: float = 0.5) -> pb.HotKey:
    return pb.HotKey(target_schema="shop", target_table="orders", key="(`id` = 7)", transactions=9, age_seconds=age)


# --- target-slow


def test_a_slow_target_has_its_commits_and_its_round_trip() -> None:
    busy = {"target": 0.6, "gather": 0.3, "idle": 0.1}
    found = findings(view(*(lane(n, busy, changes=500, transactions=10, commit=0.24) for n in range(2))))
    assert [each.id for each in found] == ["target-slow"]
    [slow] = found
    assert slow.figures["share"] == pytest.approx(0.9)
    assert slow.figures["gather_share"] == pytest.approx(0.3)
    assert slow.figures["commit_ms"] == pytest.approx(240)
    assert slow.figures["round_trip_ms"] == pytest.approx(1)
    assert "The target uses 90 %" in slow.text and "a commit takes 0.2 s" in slow.text
    assert "disk" in slow.actions[0]
    assert "replicate.lanes" in slow.actions[1], "all lanes are busy: more of them help"
    assert slow.sources == ("mysql-01",)


def test_a_far_target_is_a_matter_of_the_network() -> None:
    busy = {"target": 0.9, "idle": 0.1}
    seen = view(*(lane(n, busy, changes=5, transactions=2, commit=1) for n in range(2)), target=looked(0.4))
    assert "network" in one("target-slow", seen).actions[0]


def test_no_commit_has_ended_and_no_round_trip_is_known() -> None:
    seen = view(
        lane(0, {"target": 1.0}),
        lane(1, {"target": 1.0}),
        status=behind(phase_seconds=31),
        target=pb.TargetLook(),
    )
    text = one("target-slow", seen).text
    assert "no commit has ended in 4.0 s" in text and "lane 0 has been committing for 31 s" in text
    assert "is not known" in text
    assert "commit_ms" not in one("target-slow", seen).figures
    assert "round_trip_ms" not in one("target-slow", seen).figures


def test_a_target_that_is_not_the_cause() -> None:
    assert "target-slow" not in ids(view(lane(0, {"target": 0.4, "idle": 0.6}), lane(1, _IDLE)))


# --- a transaction that does not end

_NO_PROCESS = "who holds row locks (the account needs PROCESS)"


@pytest.mark.parametrize("hidden", [_NO_PROCESS, ""])
def test_a_transaction_that_does_not_end_is_no_matter_of_skew(hidden: str) -> None:
    """An account without PROCESS does not see that the lane waits for a lock."""
    status = behind(phase="reading")
    status.lanes[1].phase, status.lanes[1].phase_seconds = "committing", 31
    seen = view(
        lane(0, _IDLE), lane(1, {"target": 1.0}, connection=7), status=status, target=looked(0.0001, hidden=hidden)
    )
    [found] = findings(seen)
    assert (found.id, found.names) == ("long-commit", {"lane": "1", "connection": "7"})
    assert "Lane 1 has committed one transaction for 31 s, and it has not ended" in found.text
    assert "a round trip to the target takes 0.1 ms" in found.text
    assert found.figures["commit_seconds"] == 31
    assert ("Whether it waits for a lock there is not known" in found.text) == bool(hidden)
    assert (_NO_PROCESS in found.text) == bool(hidden)
    assert "`SHOW FULL PROCESSLIST`" in found.actions[-1]


def test_a_transaction_that_does_not_end_has_what_the_lane_reports() -> None:
    """A server whose disk is full waits with the COMMIT: its statements are not slow."""
    status = behind(phase="reading")
    status.lanes[1].phase, status.lanes[1].phase_seconds = "committing", 31
    status.lanes[1].waits_for = "the target, which has been committing for 31 s and waits for free disk space"
    found = one("long-commit", view(lane(0, _IDLE), lane(1, {"target": 1.0}), status=status))
    assert f"Lane 1 waits for {status.lanes[1].waits_for}." in found.text
    assert "its statements are slow" not in found.text
    assert "state `Waiting for someone to free space`" in found.actions[-1]


def test_lanes_whose_transactions_do_not_end_are_one_finding() -> None:
    status = behind(128, phase_seconds=10)
    status.lanes[3].phase_seconds = 90
    found = one("long-commit", view(*(lane(n, {"target": 1.0}) for n in range(128)), status=status))
    assert "Lane 3 has" in found.text and "So have lane(s) 0, 1, 2 and 124 more." in found.text


def test_one_long_transaction_does_not_hide_what_the_other_lanes_do() -> None:
    status = behind(phase="applying")
    status.lanes[1].phase, status.lanes[1].phase_seconds = "committing", 31
    busy = lane(0, {"decode": 1.0}, changes=50, transactions=5)
    assert ids(view(busy, lane(1, {"target": 1.0}), status=status))[0] == "long-commit"
    assert "target-slow" in ids(view(busy, lane(1, {"target": 1.0}), status=status))


@pytest.mark.parametrize(("round_trip", "seconds"), [(0.4, 31.0), (0.0001, 3.0)], ids=["a slow way", "a short time"])
def test_a_transaction_that_may_take_so_long(round_trip: float, seconds: float) -> None:
    seen = view(
        *(lane(n, {"target": 1.0}) for n in range(2)), status=behind(phase_seconds=seconds), target=looked(round_trip)
    )
    assert ids(seen) == ["target-slow"]


# --- the other causes


@pytest.mark.parametrize(
    ("cause", "wanted"),
    [("decode", "decode-slow"), ("read", "relay-log-slow"), ("barrier", "barrier"), ("start", "lanes-starting")],
)
def test_a_cause_by_its_share(cause: str, wanted: str) -> None:
    seen = view(*(lane(n, {cause: 0.7, "idle": 0.3}) for n in range(2)))
    assert ids(seen)[0] == wanted
    assert one(wanted, seen).figures["share"] == pytest.approx(0.7)
    assert wanted not in ids(view(*(lane(n, {cause: 0.4, "idle": 0.6}) for n in range(2))))


def test_a_transaction_that_is_repeated_has_its_error() -> None:
    status = behind()
    status.lanes[1].attempt = 4
    status.lanes[1].error.CopyFrom(
        ErrorDetail(code=40023, name="target-lock-conflict", message="Deadlock", workaround="w")
    )
    seen = view(lane(0, {"retry": 0.5, "idle": 0.5}), lane(1, {"retry": 1.0}), status=status)
    found = one("target-refuses", seen)
    assert "Lane 1" in found.text and "[40023 target-lock-conflict] Deadlock" in found.text
    assert found.figures["attempt"] == 4
    assert found.actions == ("w",)


def test_no_cause_has_most_of_the_time() -> None:
    shares = {"target": 0.35, "decode": 0.3, "read": 0.2, "idle": 0.15}
    seen = view(*(lane(n, shares, changes=5, transactions=5) for n in range(2)))
    found = one("no-single-cause", seen)
    assert "target 35 %, decode 30 %, read 20 %, idle 15 %" in found.text
    assert ids(seen) == ["no-single-cause"]
    # Without stop-task: between it and the next start, nothing protects the task's relay log.
    assert found.actions[0].endswith("then `dmctl update-task FILE`.")


def test_more_lanes_are_no_answer_to_lanes_that_are_not_busy() -> None:
    shares = {"target": 0.3, "decode": 0.1, "read": 0.35, "start": 0.25}
    found = one("no-single-cause", view(*(lane(n, shares, changes=5, transactions=5) for n in range(2))))
    assert found.actions == (f"Measure for longer: `dmctl why {TASK} --seconds 30`",)


# --- keeping up


def test_a_task_that_keeps_up_is_no_problem_although_the_target_has_most_of_the_time() -> None:
    shares = {"target": 0.9, "idle": 0.1}
    near = sync(oldest_ms=200, lag_ms=40)
    seen = view(*(lane(n, shares, changes=400, transactions=9, commit=0.1) for n in range(2)), status=near)
    assert ids(seen) == ["keeps-up", "target-slow"]
    found = one("keeps-up", seen)
    assert found.figures == {"lag_seconds": pytest.approx(0.2), "changes_per_second": pytest.approx(800 / SECONDS)}
    assert found.actions == ()


def test_an_unknown_lag_is_not_taken_for_none() -> None:
    shares = {"target": 0.9, "idle": 0.1}
    unknown = sync(unknown="lane 1 has not reported for 8 s")
    found = findings(view(*(lane(n, shares, changes=4, transactions=2) for n in range(2)), status=unknown))
    assert [each.id for each in found] == ["lag-unknown", "target-slow"]
    assert found[1].weight == pytest.approx(54), "as much as while it is known to lag"


# --- one lane has the work


def test_one_hot_key_is_named() -> None:
    busy = {"target": 0.95, "idle": 0.05}
    seen = view(
        lane(0, _IDLE, transactions=3),
        lane(1, busy, changes=900, rows=9, transactions=9, tables=[(_TABLE, 900, "")], hot=_hot()),
    )
    assert ids(seen)[0] == "hot-key"
    found = one("hot-key", seen)
    assert found.names == {"lane": "1", "table": _TABLE, "key": "(`id` = 7)"}
    assert found.figures["changes_per_row"] == 100
    assert found.figures["share_of_changes"] == 1
    assert "More lanes do not help" in found.actions[0]


def test_a_key_that_is_not_known_or_not_recent_is_not_named() -> None:
    for hot in (None, _hot(age=60)):
        busy = lane(1, {"target": 1.0}, changes=900, rows=9, transactions=9, tables=[(_TABLE, 900, "")], hot=hot)
        found = one("hot-key", view(lane(0, _IDLE), busy))
        assert "key" not in found.names
        assert f"few keys of {_TABLE}" in found.text


def test_one_table_that_keeps_to_one_lane() -> None:
    busy = lane(
        0, {"target": 1.0}, changes=100, transactions=5, tables=[(_TABLE, 99, "it has no key"), ("`a`.`b`", 1, "")]
    )
    found = one("lane-skew", view(busy, lane(1, _IDLE)))
    assert found.names == {"lane": "0", "table": _TABLE}
    assert "All rows of this table have one lane, because it has no key" in found.text
    assert found.figures["share_of_table"] == pytest.approx(0.99)


def test_keys_that_belong_to_one_lane_by_chance() -> None:
    busy = lane(0, {"decode": 1.0}, changes=90, transactions=5, tables=[(_TABLE, 90, "")])
    found = one("lane-skew", view(busy, lane(1, _IDLE, changes=10, transactions=1)))
    assert "happen to belong to this lane" in found.text
    assert "replicate.lanes" in found.actions[0]


def test_the_table_of_a_lane_that_has_ended_no_commit_is_not_known() -> None:
    found = one("lane-skew", view(lane(0, {"target": 1.0}), lane(1, _IDLE)))
    assert found.names == {"lane": "0"}
    assert "so the table is not known" in found.text


def test_a_lane_that_only_moves_its_checkpoint_has_no_work() -> None:
    """At a slow target that takes most of its time, too."""
    busy = lane(0, {"target": 1.0}, changes=90, transactions=5, tables=[(_TABLE, 90, "")])
    other = lane(1, {"target": 0.8, "idle": 0.2}, transactions=4)
    assert ids(view(busy, other))[0] == "lane-skew"


@pytest.mark.parametrize(
    "lanes",
    [
        (lane(0, {"target": 1.0}, changes=50, transactions=5), lane(1, {"target": 1.0}, changes=50, transactions=5)),
        (lane(0, {"target": 0.3, "idle": 0.7}, changes=90, transactions=5), lane(1, _IDLE)),
        (lane(0, {"target": 1.0}, changes=60, transactions=5), lane(1, _IDLE, changes=40, transactions=5)),
        (lane(0, {"target": 1.0}, changes=90, rows=1, transactions=1),),
    ],
    ids=["both busy", "hardly busy", "the other has changes", "a single lane"],
)
def test_no_lane_has_the_work_alone(lanes: tuple[pb.LaneUse, ...]) -> None:
    assert not {"hot-key", "lane-skew"} & set(ids(view(*lanes)))


# --- no figures


def test_lanes_that_have_not_reported_lead_to_no_cause() -> None:
    """A lane of which a part of the time is known only, or nothing."""
    seen = view(lane(0, {}), lane(1, {"target": 0.2}), status=behind())
    assert ids(seen) == []


def test_lanes_of_a_subtask_that_does_not_run_have_no_finding() -> None:
    copying = view(lane(0, {"target": 1.0}), lane(1, {"target": 1.0}), status=worker_pb2.LoadStatus())
    assert ids(copying) == ["history"]
