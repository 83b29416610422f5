"""Purge asks what subtasks may still read (I7): not knowing is needing everything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worker.needs import Need, NeedsFrom, NeedsNothing, NeedUnknown, combined
from worker.position import RelayOffset

NEEDS: st.SearchStrategy[Need] = st.one_of(
    st.just(NeedsNothing()),
    st.just(NeedUnknown()),
    st.builds(NeedsFrom, st.builds(RelayOffset, st.integers(1, 3), st.integers(4, 9))),
)


@given(st.lists(NEEDS, max_size=5))
def test_together_they_need_what_the_neediest_needs(needs: list[Need]) -> None:
    offsets = [need.offset for need in needs if isinstance(need, NeedsFrom)]
    match combined(needs):
        case NeedUnknown():
            assert NeedUnknown() in needs
        case NeedsFrom(offset=offset):
            assert NeedUnknown() not in needs
            assert offset == min(offsets)
        case NeedsNothing():
            assert not offsets
            assert NeedUnknown() not in needs
