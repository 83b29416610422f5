"""A kept log line has no secret, no statement and no text of an unknown exception."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import errors
from shardmerge.proto.diagnostics.log_event import line_of_event, short_path

_CANARY = "Geheim-4711"


def _line(event: dict[str, object], found: BaseException | None = None) -> dict[str, Any]:
    return json.loads(line_of_event(event, found))


@pytest.mark.parametrize(
    "field",
    ["password", "run_secret", "token", "access_key", "credentials", "statement", "sql", "DDL", "sqls"],
)
def test_secrets_and_statements_are_left_out_by_their_names(field: str) -> None:
    line = _line({"event": "e", "level": "error", field: _CANARY, "task": "merge"})
    assert _CANARY not in json.dumps(line)
    assert field in line and line["task"] == "merge"


def test_values_of_other_types_are_left_out() -> None:
    line = _line({"event": "e", "level": "error", "config": {"password": _CANARY}, "raw": _CANARY.encode()})
    assert _CANARY not in json.dumps(line)
    assert line["config"] == "(dict)" and line["raw"] == "(bytes)"


def test_an_exception_has_types_and_frames_and_no_text() -> None:
    def fails(secret: str) -> None:
        raise KeyError(secret)

    def wraps() -> None:
        try:
            fails(_CANARY)
        except KeyError as error:
            raise errors.master.TASK_UNKNOWN(task="merge") from error

    with pytest.raises(errors.ShardmergeError) as caught:
        wraps()
    line = _line({"event": "e", "level": "error", "exc_info": True}, caught.value)
    assert _CANARY not in json.dumps(line)
    first, second = line["exception"]
    assert first["type"] == "ShardmergeError" and "[60302 " in first["text"]
    assert second["type"] == "KeyError" and second["text"] == "(left out)"
    assert any(frame.endswith("fails") and "test_log_event.py:" in frame for frame in second["frames"])


@given(
    st.dictionaries(
        st.text(max_size=20), st.one_of(st.text(max_size=5000), st.integers(), st.binary(max_size=50), st.none())
    )
)
def test_a_line_is_one_bounded_line_of_json(event: dict[str, object]) -> None:
    line = line_of_event({"event": "e", "level": "error", **event}, None)
    assert len(line) <= 6000
    assert "\n" not in line and "\x1b" not in line
    assert isinstance(json.loads(line), dict)


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/opt/v/lib/python3.11/site-packages/grpc/_server.py", "grpc/_server.py"),
        ("/home/anna/shardmerge/worker/daemon/daemon.py", "shardmerge/worker/daemon/daemon.py"),
        ("/usr/lib/python3.11/threading.py", "lib/python3.11/threading.py"),
    ],
)
def test_paths_begin_at_the_package(path: str, short: str) -> None:
    assert short_path(path) == short
