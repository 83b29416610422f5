"""Purge asks what subtasks may still read (I7): not knowing is needing everything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.daemon.subtask.relay_hold import HoldAll, HoldFrom, HoldNothing, RelayHold, lowest_hold

NEEDS: st.SearchStrategy[RelayHold] = st.one_of(
    st.just(HoldNothing()),
    st.just(HoldAll()),
    st.builds(HoldFrom, st.builds(RelayOffset, st.integers(1, 3), st.integers(4, 9))),
)


@given(st.lists(NEEDS, max_size=5))
def test_together_they_need_what_the_neediest_needs(needs: list[RelayHold]) -> None:
    offsets = [need.offset for need in needs if isinstance(need, HoldFrom)]
    match lowest_hold(needs):
        case HoldAll():
            assert HoldAll() in needs
        case HoldFrom(offset=offset):
            assert HoldAll() not in needs
            assert offset == min(offsets)
        case HoldNothing():
            assert not offsets
            assert HoldAll() not in needs
