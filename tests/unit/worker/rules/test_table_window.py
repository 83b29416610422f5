"""Which windows are open at a place of a stream, however the stream is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.rules.table_window import TableWindow, WindowCursor, edges_of

places = st.integers(0, 9).map(lambda byte: RelayOffset(1 + byte // 5, byte % 5))


@st.composite
def windows(draw: st.DrawFn) -> tuple[TableWindow, ...]:
    found: list[TableWindow] = []
    for number in range(draw(st.integers(0, 6))):
        begin, end = draw(st.none() | places), draw(st.none() | places)
        if begin is not None and end is not None and end <= begin:
            end = None
        found.append(TableWindow(("d", f"t{number}"), begin, end))
    return tuple(found)


def _is_open(window: TableWindow, place: RelayOffset) -> bool:
    return (window.begin is None or window.begin <= place) and (window.end is None or place < window.end)


@given(windows(), st.lists(places, min_size=1).map(sorted))
def test_windows_are_open_from_their_begin_to_their_end(found: tuple[TableWindow, ...], way: list[RelayOffset]) -> None:
    cursor = WindowCursor(found)
    before = {window.name: cursor.is_open(window.name) for window in found}
    for place in way:
        is_at_edge = cursor.is_at_edge(place)
        changed = cursor.advance(place)
        assert bool(changed) == is_at_edge
        assert {window.name: cursor.is_open(window.name) for window in found} == {
            window.name: _is_open(window, place) for window in found
        }
        assert changed >= {window.name for window in found if before[window.name] != cursor.is_open(window.name)}
        before = {window.name: cursor.is_open(window.name) for window in found}
    assert cursor.is_open(("d", "another"))


@given(windows())
def test_edges_are_every_place_of_a_change_once(found: tuple[TableWindow, ...]) -> None:
    edges = edges_of(found)
    assert list(edges) == sorted(set(edges))
    assert set(edges) == {edge for window in found for edge in (window.begin, window.end) if edge is not None}
