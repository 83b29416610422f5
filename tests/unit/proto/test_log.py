"""The daemons' log: to a file that may be moved away, and never a daemon's end."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import LogFile, configure, get_logger


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_lines_go_to_the_file_from_its_level_on(tmp_path: Path) -> None:
    path = tmp_path / "d.log"
    path.write_text("before\n")
    configure("dm-test", "warn", "json", str(path))
    get_logger().info("too low")
    get_logger().warning("said", source="mysql-01")
    logging.getLogger("a.library").warning("of a library")
    first, second, third = path.read_text().splitlines()
    assert first == "before"
    assert json.loads(second).items() >= {"event": "said", "source": "mysql-01", "program": "dm-test"}.items()
    assert third.endswith("a.library of a library")


@pytest.mark.parametrize("fmt", ["text", "json"])
def test_a_name_with_line_ends_forges_no_line(tmp_path: Path, fmt: str) -> None:
    path = tmp_path / "d.log"
    configure("dm-test", "info", fmt, str(path))
    get_logger().info("source bound", source="a\nb\x1b[2K", error=str(errors.master.TASK_UNKNOWN(task="x\ny")))
    [line] = path.read_text().splitlines()
    assert "\x1b" not in line
    assert "x0ab" in line and "x0ay" in line


def test_a_file_that_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "d.log"
    configure("dm-test", file=str(path))
    get_logger().info("one")
    path.rename(tmp_path / "d.log.1")
    get_logger().info("two")
    path.unlink()
    get_logger().info("three")
    assert "one" in (tmp_path / "d.log.1").read_text()
    assert "three" in path.read_text() and "two" not in path.read_text()


def test_a_line_that_cannot_be_written_goes_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = LogFile(tmp_path / "gone" / ".." / "d.log") if (tmp_path / "gone").mkdir() is None else None
    assert file is not None
    (tmp_path / "d.log").unlink()
    (tmp_path / "gone").rmdir()
    file.write("a line\n")
    assert capsys.readouterr().err == "a line\n"


def test_a_file_that_cannot_be_made_is_a_coded_error(tmp_path: Path) -> None:
    with pytest.raises(ShardmergeError) as caught:
        configure("dm-test", file=str(tmp_path / "none" / "d.log"))
    assert caught.value.spec is errors.config.LOG_FILE
