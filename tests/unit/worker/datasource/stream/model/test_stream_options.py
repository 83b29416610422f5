"""Options of mysql-cdc: the start, DDL, and the bounds of batches."""

from __future__ import annotations

import pickle

import pytest

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.datasource.stream.model.options import OnDdl, parse_stream_options
from shardmerge.worker.datasource.stream.model.start import (
    AfterGtids,
    AtPosition,
    AtTime,
    Latest,
    Start,
    WithSnapshot,
    parse_starts,
)

ONE = {"host": "h", "user": "u", "tables": "shop_*.orders_*"}
TWO = {"sources": "a: {host: h, user: u}\nb: {host: i, user: u}\n", "tables": "shop_*.orders_*"}
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_defaults_and_values() -> None:
    found = parse_stream_options(ONE)
    assert (found.starts, found.on_ddl) == ({"mysql-01": WithSnapshot()}, OnDdl.STOP)
    assert (found.most_bytes, found.tasks) == (64 << 20, 1)
    given = {"DDL": "Event", "max-bytes-per-batch": "1000", "tasks-per-source": "4", "password": "secret"}
    found = parse_stream_options(ONE | given | {"start": "latest", "columns": "a, b"})
    assert (found.starts, found.on_ddl) == ({"mysql-01": Latest()}, OnDdl.EVENT)
    assert (found.most_bytes, found.tasks, found.read.columns) == (1000, 4, ("a", "b"))
    assert "secret" not in repr(found)
    assert pickle.loads(pickle.dumps(found)).most_bytes == 1000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("snapshot", WithSnapshot()),
        (" Latest ", Latest()),
        ("mysql-bin.000042:1234", AtPosition(SourcePosition("mysql-bin.000042", 1234))),
        ("/var/log/b.1:4", AtPosition(SourcePosition("/var/log/b.1", 4))),
        ("0-1-5,1-2-9", AfterGtids("0-1-5,1-2-9")),
        (f"{UUID}:1-5:7", AfterGtids(f"{UUID}:1-5:7")),
        ("2026-01-02 03:04:05", AtTime("2026-01-02 03:04:05")),
        ("2026-01-02T03:04:05.5+02:00", AtTime("2026-01-02T03:04:05.5+02:00")),
    ],
)
def test_starts(text: str, start: Start) -> None:
    assert parse_starts(text, ["mysql-01"]) == {"mysql-01": start}
    assert parse_starts(f"{{mysql-01: '{text}'}}", ["mysql-01"]) == {"mysql-01": start}


def test_starts_of_several_sources() -> None:
    found = parse_stream_options(TWO | {"start": "a: latest\nb: m.000001:4\n"})
    assert found.starts == {"a": Latest(), "b": AtPosition(SourcePosition("m.000001", 4))}
    assert parse_starts("latest", ["a", "b"]) == {"a": Latest(), "b": Latest()}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"start": "yesterday"}, "option start"),
        ({"start": "mysql-bin:4"}, "option start"),
        ({"start": "{other: latest}"}, "it has other, but the sources are mysql-01"),
        ({"start": "{mysql-01: never}"}, "mysql-01: 'never'"),
        ({"ddl": "skip"}, "it is stop or event"),
        ({"max-bytes-per-batch": "0"}, "option max-bytes-per-batch"),
        ({"tasks-per-source": "65"}, "from 1 to 64"),
        ({"where": "id > 1"}, "option where"),
        ({"max-changes": "1"}, "there is no such option"),
    ],
)
def test_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ShardmergeError, match="35001") as caught:
        parse_stream_options(ONE | given)
    assert reason in str(caught.value)


def test_a_position_belongs_to_one_source() -> None:
    with pytest.raises(ShardmergeError, match="as a mapping"):
        parse_stream_options(TWO | {"start": "mysql-bin.000042:1234"})
