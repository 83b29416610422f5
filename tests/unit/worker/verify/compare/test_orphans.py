"""Whatever changes between the reads: an orphan is reported only if its row and its partner did not change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.verify.compare.keys import RowKey
from shardmerge.worker.verify.compare.orphans import OrphanVerdict, Touched, judge_orphans

_NUMBERS = st.frozensets(st.integers(0, 7))


def key_at(number: int) -> RowKey:
    return RowKey((b"%d" % number,), (b"%d" % number,))


@given(_NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS)
def test_each_candidate_is_an_orphan_read_again_or_none(
    paired: frozenset[int], lacking: frozenset[int], touched: frozenset[int], touched_partners: frozenset[int]
) -> None:
    keys = [key_at(number) for number in range(8)]
    partners = {key_at(number).target: (b"p%d" % number,) for number in paired}
    changed = Touched(
        {key_at(number).target for number in touched}, {(b"p%d" % number,) for number in touched_partners}
    )
    verdict = judge_orphans(keys, partners, {key_at(number).target for number in lacking}, changed)
    moved = paired & (touched | touched_partners)
    assert verdict == OrphanVerdict(
        tuple(key_at(number) for number in sorted((paired & lacking) - moved)),
        tuple(key_at(number) for number in sorted(moved)),
    )
