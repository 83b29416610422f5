"""Blocks end where a reader changes its tables, and statements are found from an offset on."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.model import AtStatement, BlockData, ReachedUntil, Statement
from shardmerge.worker.relay.serve.log_reader import LogReader
from shardmerge.worker.relay.serve.subscription import subscribe
from tests.support.made_source import MadeSource
from tests.unit.worker.relay.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Statements and transactions in turn, over several segments."""
    rig = Rig(tmp_path, MadeSource())
    for number in range(30):
        rig.source.transaction(50, 50)
        rig.source.statement(b"ALTER TABLE t%d FORCE" % number)
        rig.source.statement(b"ALTER TABLE u%d FORCE" % number)
    rig.fetch()
    return rig


class _Reader(LogReader):
    def failure(self) -> None: ...


def _statements(rig: Rig) -> list[Statement]:
    return list(_Reader(rig.log).statements_from(rig.log.first().offset))


def test_statements_are_those_of_all_segments_from_an_offset_on(rig: Rig) -> None:
    found = _statements(rig)
    assert [statement.text.split()[2] for statement in found] == [f"{name}{n}" for n in range(30) for name in "tu"]
    assert found[-1].group_start.segment > found[0].group_start.segment + 2
    for at, statement in enumerate(found):
        assert next(_Reader(rig.log).statements_from(statement.group_start)) == statement
        assert list(_Reader(rig.log).statements_from(statement.group_end))[:1] == found[at + 1 : at + 2]


def test_a_reader_that_begins_at_a_statement_gets_it_first(rig: Rig) -> None:
    """As a lane does that was parked there when its process ended."""
    for statement in _statements(rig)[:8]:
        served = subscribe(rig.log, statement.group_start, rig.log.head().offset, lambda _: True, StopSignal())
        assert next(served) == AtStatement(statement)


def _read(rig: Rig, edges: tuple[RelayOffset, ...], names: str = "") -> tuple[bytes, list[RelayOffset]]:
    """The events, and where blocks and statements begin. ``names``: first letters of tables with barriers."""

    def in_scope(statement: Statement) -> bool:
        return statement.text.split()[2][0] in names

    data, begins = b"", list[RelayOffset]()
    for item in subscribe(
        rig.log, rig.log.first().offset, rig.log.head().offset, in_scope, StopSignal(), edges=lambda: edges
    ):
        match item:
            case BlockData(start=start, events=events):
                data += events
                begins.append(start)
            case AtStatement(statement=statement):
                begins.append(statement.group_start)
            case ReachedUntil():
                pass
            case _:
                raise AssertionError(item)
    return data, begins


@pytest.mark.parametrize("names", ["", "t", "tu"])
def test_no_block_extends_over_an_edge(rig: Rig, names: str) -> None:
    edges = tuple(statement.group_end for statement in _statements(rig))
    whole, _ = _read(rig, ())
    data, begins = _read(rig, edges, names)
    assert data == whole
    assert begins == sorted(begins)
    last = rig.log.head().offset
    # An edge at the end of a segment is before the first byte of the next one.
    assert sum(edge in begins for edge in edges) >= sum(edge.byte != 0 for edge in edges) - last.segment


def test_an_edge_that_is_set_at_a_statement_counts_for_the_rest(rig: Rig) -> None:
    first, second, third = (statement for statement in _statements(rig)[:3])
    edges: list[RelayOffset] = []
    begins: list[RelayOffset] = []
    for item in subscribe(
        rig.log,
        rig.log.first().offset,
        rig.log.head().offset,
        lambda statement: statement == first,
        StopSignal(),
        edges=lambda found=edges: found,
    ):
        if isinstance(item, AtStatement):
            edges += (second.group_end, third.group_end)
        if isinstance(item, BlockData):
            begins.append(item.start)
    assert {second.group_end, third.group_end} <= set(begins)
