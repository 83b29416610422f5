"""The stored form of an entry: bounded whatever it holds, and readable by other versions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import etcd_keys
from shardmerge.proto import state_pb2 as pb
from shardmerge.proto.task_history.event import Event, HistoryEntry, HistoryEntryKind
from shardmerge.proto.task_history.record import MOST_BYTES, VERSION, cut, decode, encode, key_of
from shardmerge.proto.task_history.recorder import puts_of

_TEXT = st.one_of(st.text(max_size=50), st.text(st.characters(codec="utf-8"), max_size=20).map(lambda text: text * 200))


@given(
    st.builds(
        Event,
        task=st.text(min_size=1, max_size=64),
        kind=st.sampled_from(HistoryEntryKind),
        at=st.floats(0, 1e11),
        text=_TEXT,
        sources=st.lists(st.text(min_size=1, max_size=64), max_size=200).map(tuple),
        message=_TEXT,
        statement=_TEXT,
        target=_TEXT,
        position=_TEXT,
        actor=_TEXT,
        name=_TEXT,
    ),
    _TEXT,
)
def test_no_entry_is_larger_than_its_bound(event: Event, writer: str) -> None:
    value = encode(HistoryEntry("0-w-1", event, event.at), writer, "i" * 32)
    assert len(value) <= MOST_BYTES
    record = decode(pb.HistoryRecord, value)
    assert record is not None
    assert (record.kind, record.last) == (event.kind, event.at)
    assert tuple(record.sources) in (event.sources, ())


def test_a_long_statement_is_cut_with_a_mark() -> None:
    event = Event("t", HistoryEntryKind.DDL, 1.0, "applied", statement="ALTER TABLE t ADD COLUMN " + "c" * 5_000)
    record = decode(pb.HistoryRecord, encode(HistoryEntry("n", event, 1.0), "worker w", "i"))
    assert record is not None
    assert record.statement.endswith("c…")
    assert len(record.statement) == 700
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "ab…"


def test_a_field_of_a_newer_version_is_ignored_and_a_newer_record_left_out() -> None:
    assert decode(pb.HistoryRecord, b'{"version": 1, "text": "x", "mood": "good"}') == pb.HistoryRecord(
        version=1, text="x"
    )
    assert decode(pb.HistoryRecord, f'{{"version": {VERSION + 1}}}'.encode()) is None
    assert decode(pb.HistoryRecord, b"no record") is None
    assert decode(pb.HistoryRecord, b"\xff") is None


_LONE = st.text(st.characters(), max_size=30)
"""With halves of characters."""


@given(_LONE, _LONE, st.lists(_LONE, max_size=3).map(tuple))
def test_every_text_is_storable(text: str, other: str, sources: tuple[str, ...]) -> None:
    event = Event(
        "t",
        HistoryEntryKind.ERROR,
        1.0,
        text,
        sources=sources,
        stage=other,
        name=text,
        message=other,
        statement=text,
        target=other,
        position=text,
        actor=other,
        operation=text,
    )
    record = decode(pb.HistoryRecord, encode(HistoryEntry("n", event, 1.0), text, other))
    assert record is not None
    assert len(record.sources) in (len(sources), 0)


def test_an_entry_that_cannot_be_stored_loses_no_other() -> None:
    good = HistoryEntry("1", Event("t", HistoryEntryKind.DDL, 1.0, "x"), 1.0)
    bad = HistoryEntry("2", Event("t", HistoryEntryKind.DDL, 1.0, "x", epoch=1 << 70), 1.0)
    puts, failed = puts_of([good, bad, good], "worker w", "i")
    assert [put.key for put in puts] == [key_of(good)] * 2
    [(lost, reason)] = failed
    assert lost == bad
    assert reason.startswith("ValueError: ")


def test_the_key_is_not_among_the_records_that_every_process_reads() -> None:
    key = key_of(HistoryEntry("0000000001000-w-1", Event("a/b", HistoryEntryKind.DDL, 1.0, "x"), 1.0))
    assert not key.startswith(etcd_keys.PREFIX)
    assert etcd_keys.names(key, etcd_keys.HISTORY_ENTRIES) == ("a/b", "ddl", "0000000001000-w-1")
    assert key.startswith(etcd_keys.history_entries("a/b"))
    assert not key.startswith(etcd_keys.history_entries("a"))
