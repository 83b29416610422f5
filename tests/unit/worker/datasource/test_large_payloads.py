"""A compressed transaction is read into Spark in parts: some megabytes of binlog may be gigabytes of events."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shardmerge.worker.binlog.events import EventType
from shardmerge.worker.core.mysql.endpoint import Endpoint
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.datasource import group_reader
from shardmerge.worker.datasource.plan.read_plan import ReadOptions, SourcePlan
from shardmerge.worker.datasource.state import undo
from shardmerge.worker.relay.fetch.dump_connection import Dump
from tests.support.binlog import split
from tests.support.made_source import TIME, MadeSource
from tests.unit.worker.binlog.test_transaction_payload import body, transaction

MOST = 1 << 20
PLAIN = transaction(*[100_000] * 50)
START = SourcePosition("mysql-bin.000001", 4)
TABLE = SimpleNamespace(plan=SimpleNamespace(table=SimpleNamespace(schema="d", name="t")))
NOWHERE = Endpoint("127.0.0.1", 1, "u")


class MadeDump:
    """The dump of a made source, without a connection."""

    info = SimpleNamespace(identity="")

    def __init__(self, source: MadeSource, *_: object) -> None:
        self._events = iter(source.dump(START))

    def begin(self, *_: object, **__: object) -> None: ...

    def receive(self) -> None: ...

    def received(self) -> tuple[bytearray, int, int]:
        return bytearray(64), 0, 0

    def event(self) -> memoryview | None:
        made = next(self._events, None)
        return None if made is None else memoryview(made)

    def close(self) -> None: ...


def _made() -> MadeSource:
    source = MadeSource(mariadb=False, checksum=True)
    source.gtid()
    source.add(EventType.TRANSACTION_PAYLOAD, body(PLAIN))
    return source


def _connected(monkeypatch: pytest.MonkeyPatch, source: MadeSource) -> None:
    monkeypatch.setattr(group_reader, "_LARGEST_BLOCK", MOST)
    monkeypatch.setattr(Dump, "connect", partial(MadeDump, source))


def test_a_stream_has_its_events_in_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    source = _made()
    _connected(monkeypatch, source)
    reader = group_reader.GroupReader("s1", NOWHERE, START, 0)
    blocks = [item for item in reader.items(end=source.position) if isinstance(item, group_reader.EventBlock)]
    of_group = [block for block in blocks if len(block.events) > 1000]
    assert len(of_group) > 4
    assert max(len(block.events) for block in blocks) < 2 * MOST
    # Only after the last one a restart may continue: its rows are all returned.
    assert [block.end for block in of_group[:-1]] == [None] * (len(of_group) - 1)
    assert of_group[-1].end is not None
    assert of_group[-1].end.pos == source.position.pos
    events = [event[4] for block in blocks for event in split(block.events)]
    assert events.count(EventType.WRITE_ROWS_V2) == 50


def test_a_read_has_its_events_in_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    source = _made()
    sizes: list[int] = []

    class _Decoder:
        def __init__(self, *_: object, **__: object) -> None: ...

        def open(self, description: bytes) -> None: ...

        def decode(self, events: bytes) -> list[Any]:
            sizes.append(len(events))
            return []

    _connected(monkeypatch, source)
    monkeypatch.setattr(undo, "BlockDecoder", _Decoder)
    plan = SourcePlan(cast("Any", SimpleNamespace(source="s1", fixed=None)), START, TIME, (cast("Any", TABLE),))
    options = cast("ReadOptions", SimpleNamespace(most_inflated=1 << 30, most_undo=1 << 30))
    changed = undo.Undo(plan, options, NOWHERE)
    assert changed.before(0, source.position) == {}
    assert len(sizes) > 4
    assert max(sizes) < 2 * MOST
    assert sum(sizes) > len(PLAIN)
