"""The events of a source become blocks of whole groups, whatever ends its files."""

from __future__ import annotations

from functools import partial

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.events import EventType
from shardmerge.worker.datasource import group_reader
from shardmerge.worker.datasource.group_reader import EventBlock, GroupReader
from shardmerge.worker.relay.fetch.dump_connection import Dump
from tests.support.binlog import split
from tests.support.made_source import MadeSource
from tests.unit.worker.binlog.test_transaction_payload import body, transaction
from tests.unit.worker.datasource.test_large_payloads import NOWHERE, START, MadeDump


def _blocks(monkeypatch: pytest.MonkeyPatch, source: MadeSource) -> list[EventBlock]:
    monkeypatch.setattr(Dump, "connect", partial(MadeDump, source))
    reader = GroupReader("s1", NOWHERE, START, 0)
    return [item for item in reader.items(end=source.position) if isinstance(item, EventBlock)]


@pytest.mark.parametrize("mariadb", [True, False])
def test_a_transaction_in_which_the_source_was_killed_is_left_out(
    monkeypatch: pytest.MonkeyPatch, *, mariadb: bool
) -> None:
    source = MadeSource(mariadb=mariadb)
    source.transaction(30, 40)
    source.crash(inside_group=True)
    source.transaction(50)
    source.crash(inside_group=False)
    source.transaction(60)
    blocks = _blocks(monkeypatch, source)
    assert b"".join(block.events for block in blocks) == source.committed()
    assert [block.begin.file for block in blocks] == [file.name for file in source.files]
    assert all(block.end is not None for block in blocks)


def test_a_part_of_such_a_transaction_that_was_returned_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    source = MadeSource()
    source.crash(inside_group=True)
    monkeypatch.setattr(group_reader, "_LARGEST_BLOCK", 20)
    with pytest.raises(ShardmergeError, match="ends inside a transaction") as caught:
        _blocks(monkeypatch, source)
    assert caught.value.spec is errors.relay.BAD_PACKET


def test_a_statement_in_a_compressed_transaction_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    source = MadeSource(mariadb=False)
    source.gtid()
    source.add(EventType.TRANSACTION_PAYLOAD, body(transaction(100)))
    [block] = _blocks(monkeypatch, source)
    assert sum(made[4] == EventType.QUERY for made in split(block.events)) == 1, "BEGIN"
    source.gtid()
    source.add(EventType.TRANSACTION_PAYLOAD, body(transaction(100).replace(b"BEGIN", b"TRUNC")))
    with pytest.raises(ShardmergeError, match="it contains a statement: TRUNC") as caught:
        _blocks(monkeypatch, source)
    assert caught.value.spec is errors.decode.UNSUPPORTED_EVENT
