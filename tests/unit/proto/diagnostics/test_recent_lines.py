"""The last warnings of the log are kept in a bounded number of lines and bytes."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import example, given
from hypothesis import strategies as st

from shardmerge.proto.diagnostics.recent_lines import RecentLines
from shardmerge.proto.log import configure, get_logger


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    root.handlers[:] = handlers
    root.setLevel(level)


def _events(lines: tuple[str, ...]) -> list[str]:
    return [json.loads(line)["event"] for line in lines]


def test_the_first_and_the_last_lines_are_kept() -> None:
    kept = RecentLines(first_lines=2, last_lines=3)
    for number in range(10):
        kept.keep({"level": "warning", "event": f"e{number}"})
        kept.keep({"level": "info", "event": "no warning"})
    found = kept.lines()
    assert _events(found.first) == ["e0", "e1"]
    assert _events(found.last) == ["e7", "e8", "e9"]
    assert found.dropped == 5


@given(st.lists(st.text(max_size=3000), max_size=60))
@example(["ä" * 900] * 30)
def test_the_bytes_are_bounded(texts: list[str]) -> None:
    kept = RecentLines(first_lines=5, last_lines=20, most_bytes=10_000)
    for text in texts:
        kept.keep({"level": "error", "event": text})
    found = kept.lines()
    lines = (*found.first, *found.last)
    assert sum(len(line.encode()) for line in lines) <= 10_000
    assert len(lines) + found.dropped == len(texts)
    assert len(found.first) <= 5 and len(found.last) <= 20


def test_every_daemon_log_line_passes_the_keeper(logging_as_before: None, tmp_path: Path) -> None:
    kept = RecentLines()
    configure("dm-test", "info", "json", str(tmp_path / "d.log"), kept)
    get_logger(source="mysql-01").warning("first", password="Geheim-4711")
    get_logger().info("no warning")
    try:
        raise ValueError("Geheim-4712")
    except ValueError:
        get_logger().exception("second")
    logging.getLogger("a.library").warning("text with Geheim-4713")
    lines = [json.loads(line) for line in kept.lines().first]
    assert [line["event"] for line in lines] == ["first", "second", "(left out)"]
    assert lines[0].items() >= {"level": "warning", "program": "dm-test", "source": "mysql-01"}.items()
    assert lines[1]["exception"][0]["type"] == "ValueError"
    assert lines[2].items() >= {"logger": "a.library", "level": "warning"}.items()
    assert "Geheim" not in json.dumps(lines)
    # The log itself has the exception's text, as before.
    assert "Geheim-4712" in (tmp_path / "d.log").read_text()
