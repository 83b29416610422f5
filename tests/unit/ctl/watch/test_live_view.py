"""The live view, as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmerge.ctl.render.progress import RateMemory, TableRow, read
from shardmerge.ctl.watch import live_view
from shardmerge.proto import common_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.worker_pb2 import StatusWarning
from tests.support import canned_master as canned
from tests.unit.ctl.render.drawing import draw

FRAME = live_view.Frame(title="task merge", address="h:8261", elapsed=83.4, width=120, height=40)


def _draw(answer: pb.QueryStatusResponse, frame: live_view.Frame = FRAME) -> str:
    return draw(live_view.render(read(answer, RateMemory(), 0.0), frame), width=frame.width)


def test_a_snapshot_shows_every_table_and_the_total() -> None:
    text = _draw(canned.status(canned.subtask(canned.loading(0.5)), canned.subtask(canned.loading(0.25))))
    title = text.splitlines()[0]
    assert "task merge  copying history" in title
    assert "h:8261  00:01:23" in title
    assert text.count("shop_01.orders_01 → shop.orders") == 2
    (total,) = (line for line in text.splitlines() if line.startswith("all sources"))
    assert "37.5 %" in total
    assert "750,000 / 2,000,000" in total
    assert "100,000" in total
    assert "Ctrl-C ends this view; the task continues." in text


def test_replication_shows_lag_bytes_rate_and_lanes() -> None:
    text = _draw(
        canned.status(canned.subtask(canned.syncing(synced=False, behind=10 << 20, lanes=20), doing="barrier"))
    )
    (line,) = (line for line in text.splitlines() if line.startswith("mysql-01"))
    assert "… lags  barrier" in line
    assert "12.5 s" in line
    assert "10.0 MiB" in line
    assert "1,200" in line
    assert "■" * 16 + " +4" in line
    assert "catching up" in text
    assert "lane 1" not in text


def test_lanes_on_demand() -> None:
    text = _draw(canned.status(canned.subtask(canned.syncing(synced=False))), replace(FRAME, lanes=True))
    assert "lane 0  reading  events" in text
    assert "lane 1  applying" in text


def test_what_is_not_known_is_not_shown_as_0() -> None:
    answer = canned.status(canned.subtask(canned.unknown_progress("lane 1 has not reported for 8 s")))
    text = _draw(answer, replace(FRAME, lanes=True, width=160))
    assert "progress unknown" in text
    assert "unknown: lane 1 has not reported for 8 s" in text
    for word in ("synced", "… lags", "in sync", "catching up"):
        assert word not in text


def test_warnings_of_a_source() -> None:
    answer = canned.status(canned.subtask(canned.syncing(synced=True)))
    warning = StatusWarning(name="binlog-expiring", message="it ends soon", workaround="let it fetch")
    answer.sources[0].source_status.warnings.append(warning)
    text = _draw(answer)
    assert "! source mysql-01  [binlog-expiring] it ends soon" in text
    assert "what to do: let it fetch" in text
    assert "in sync" in text, "a warning stops nothing"


def test_a_lane_that_repeats_reports_it() -> None:
    text = _draw(canned.status(canned.subtask(canned.retrying())), replace(FRAME, lanes=True))
    assert "lane 0  retrying  attempt 3 after errno 1213" in text


@pytest.mark.parametrize(
    ("answer", "phrase"),
    [
        (canned.status(canned.subtask(canned.syncing(synced=True))), "in sync"),
        (canned.status(canned.subtask(canned.syncing(synced=True), stage=common_pb2.STAGE_PAUSED)), "paused"),
        (canned.status(canned.subtask(None, stage=common_pb2.STAGE_FINISHED)), "finished"),
        (canned.status(canned.subtask(None, stage=common_pb2.STAGE_NEW)), "waiting"),
        (canned.status(canned.subtask(None, errors=(canned.detail(),))), "needs attention"),
    ],
)
def test_one_phrase_for_all(answer: pb.QueryStatusResponse, phrase: str) -> None:
    assert phrase in _draw(answer).splitlines()[0]


@pytest.mark.parametrize("height", [24, 40, 60])
@pytest.mark.parametrize("sources", [1, 3])
def test_it_fits_the_screen(height: int, sources: int) -> None:
    answer = canned.status(*(canned.subtask(canned.loading(0.3, tables=90, rows=9_000_000)) for _ in range(sources)))
    text = _draw(answer, replace(FRAME, height=height))
    assert len(text.splitlines()) <= height
    assert "shop_27.orders_27" in text or "shop_26.orders_26" in text
    assert "waiting" in text


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    answer = canned.status(canned.subtask(canned.loading(0.3)), canned.subtask(canned.syncing(synced=True)))
    for line in _draw(answer, replace(FRAME, width=width)).splitlines():
        assert len(line) <= width


def test_trouble_and_the_last_word() -> None:
    answer = canned.status(canned.subtask(canned.loading(0.3)))
    assert "not up to date: no master" in _draw(answer, replace(FRAME, stale_reason="no master"))
    assert "In sync." in _draw(answer, replace(FRAME, closing="In sync.", stale_reason="old"))


def _row(name: str, *, rows: int = 0, done: bool = False) -> TableRow:
    return TableRow(name, "t", rows, 100, 0.0, None, done)


def test_tables_on_the_way_are_shown_first_and_the_rest_is_counted() -> None:
    rows = (_row("a", rows=100, done=True), _row("b"), _row("c", rows=5), _row("d"), _row("e", rows=7))
    assert live_view.choose(rows, 5) == (rows, "")
    shown, rest = live_view.choose(rows, 3)
    assert [row.source_table for row in shown] == ["c", "e"]
    assert rest == "… and 2 waiting, 1 done"
    assert live_view.choose(rows, 1)[1] == "… and 2 on the way, 2 waiting, 1 done"
