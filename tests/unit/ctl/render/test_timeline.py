"""`dmctl history` as a timeline."""

from __future__ import annotations

import pytest

from shardmerge.ctl.commands.task.history import since_of
from shardmerge.ctl.render.timeline import WIDTH, bars, lag_and_rate, timeline, value
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import state_pb2 as state
from tests.unit.ctl.render.drawing import draw

_NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30m", 1_800), ("2d", 172_800), ("1w1d", 691_200), ("1d12h", 129_600), ("0s", 0), ("999999999w", _NOW)],
)
def test_a_duration_ends_now(text: str, seconds: float) -> None:
    assert since_of(text, _NOW) == _NOW - seconds


def test_a_time_is_utc_unless_it_has_an_offset() -> None:
    assert since_of("2026-01-02 03:04", _NOW) == 1_767_323_040.0
    assert since_of("2026-01-02T03:04:00+01:00", _NOW) == 1_767_319_440.0


@pytest.mark.parametrize("text", ["2", "d", "2y", "-1d", "1d 2h", "yesterday", "2d!"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a duration"):
        since_of(text, _NOW)


def _lines(answer: pb.HistoryResponse) -> list[str]:
    return [" ".join(line.split()) for line in draw(timeline(answer), width=200).splitlines()]


def test_entries_are_rows_with_what_belongs_to_them() -> None:
    error = state.HistoryRecord(
        kind="error", sources=["s1"], writer="worker w1", first=1_767_323_000, last=1_767_323_118, count=118,
        text="Running → Paused", code=40201, name="target-lost", message="the [target] is gone", left_out=3,
    )  # fmt: skip
    command = state.HistoryRecord(
        kind="command", writer="master m1", first=1_767_323_200, last=1_767_323_200, count=1, text="pause-task",
        actor="alice", failed=True, message="no",
    )  # fmt: skip
    ddl = state.HistoryRecord(
        kind="ddl", sources=["s1", "s2"], writer="worker w1", first=1_767_323_300, last=1_767_323_300, count=1,
        text="applied", statement="ALTER TABLE a\nADD b INT", target="`shop`.`orders`", position="(b.1, 4)",
    )  # fmt: skip
    lines = _lines(pb.HistoryResponse(result=True, entries=[error, command, ddl], older=4, unreadable=2))
    assert "4 older entries are not shown: see --limit" in lines
    assert "2026-01-02 03:05:18 error s1 Running → Paused (118 times since 2026-01-02 03:03:20) w1" in lines
    assert "[40201 target-lost] the [target] is gone" in lines
    assert "3 events of this kind before it were too many to be recorded" in lines
    assert "2026-01-02 03:06:40 command – pause-task, failed alice" in lines
    assert any("ALTER TABLE a" in line and "→ `shop`.`orders`" in line for line in lines)
    assert "at (b.1, 4)" in lines
    assert "2 records are of a newer version and are not shown" in lines
    assert "The task does not exist now." in lines
    assert lines.index("2026-01-02 03:06:40 command – pause-task, failed alice") > 3


def test_nothing_recorded() -> None:
    assert _lines(pb.HistoryResponse(result=True, exists=True)) == ["Nothing is recorded in this time."]


def _sample(at: float, lag: float | None, rate: float) -> state.HistorySample:
    sample = state.HistorySample(at=at, seconds=600, rate=rate, sources=1, unknown=1)
    if lag is not None:
        sample.MergeFrom(state.HistorySample(lag=lag, highest_lag=lag))
        sample.unknown = 0
    return sample


def test_lag_and_rate_over_the_time() -> None:
    samples = [_sample(_NOW, 0.0, 10), _sample(_NOW + 600, None, 0), _sample(_NOW + 1_200, 8.0, 20)]
    (lag, lag_bars, lag_text), (rate, rate_bars, rate_text) = lag_and_rate(samples)
    assert (lag, lag_bars, lag_text) == ("lag", "▁ █", "highest 8.0 s at 2027-01-15 08:20:00, last 8.0 s")
    assert (rate, rate_bars, rate_text) == ("rows/s", "▅▁█", "highest 20 at 2027-01-15 08:20:00, mean 10")
    assert lag_and_rate([]) == []
    assert "lag" in draw(timeline(pb.HistoryResponse(result=True, samples=samples)))


def test_many_samples_are_one_line_that_shows_each_peak() -> None:
    samples = [_sample(_NOW + number, 1.0 if number != 700 else 100.0, 1) for number in range(1_000)]
    drawn = bars(samples, _NOW, _NOW + 999, lambda one: one.highest_lag)
    assert len(drawn) == WIDTH
    assert drawn.count("█") == 1
    assert drawn.index("█") == 42


def test_json_has_null_for_a_lag_that_is_not_known() -> None:
    made = value(pb.HistoryResponse(result=True, samples=[_sample(_NOW, None, 3), _sample(_NOW, 0.0, 3)]))
    samples = made["samples"]
    assert isinstance(samples, list)
    assert [(one["lag"], one["highestLag"]) for one in samples if isinstance(one, dict)] == [(None, None), (0.0, 0.0)]
