"""How samples are stored: in blocks of some samples, and after two days in one record a day with a sample an hour.

Pure. A record is named by its begin and its length. Where a day has its record, blocks within it count no more: so the
record may be written before they are removed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardmerge.master.task_history.readings import merged
from shardmerge.proto import state_pb2 as pb

SAMPLES = 6
"""Samples of a block. Each sample writes its block again: more samples would take more of etcd's space."""
DAY = 86_400
_HOUR = 3_600


@dataclass(frozen=True, slots=True, order=True)
class SampleBlock:
    """``begin``: Unix seconds, a multiple of ``seconds``."""

    begin: int
    seconds: int

    @property
    def name(self) -> str:
        return f"{self.begin:010d}-{self.seconds}"

    @property
    def day(self) -> int:
        """The begin of the day, UTC."""
        return self.begin // DAY * DAY


def block_at(now: float, interval: int) -> SampleBlock:
    """The block that takes a sample at ``now``."""
    seconds = min(interval * SAMPLES, DAY)
    return SampleBlock(int(now) // seconds * seconds, seconds)


def block_named(name: str) -> SampleBlock | None:
    """None: the name is not one of a block of this version."""
    begin, _, seconds = name.partition("-")
    if not begin.isdecimal() or not seconds.isdecimal() or int(seconds) < 1:
        return None
    return SampleBlock(int(begin), int(seconds))


def is_sampled(samples: Sequence[pb.HistorySample], now: float, interval: int) -> bool:
    """Whether the interval of ``now`` has its sample."""
    return any(int(one.at) // interval >= int(now) // interval for one in samples)


def days_to_thin(blocks: Iterable[SampleBlock], now: float) -> dict[int, list[SampleBlock]]:
    """Blocks shorter than a day, by day, of the days that ended more than a day ago."""
    found: dict[int, list[SampleBlock]] = defaultdict(list)
    for block in sorted(blocks):
        if block.seconds < DAY and block.day + 2 * DAY <= now:
            found[block.day].append(block)
    return dict(found)


def thinned(samples: Iterable[pb.HistorySample]) -> list[pb.HistorySample]:
    """One sample for each hour."""
    hours: dict[int, list[pb.HistorySample]] = defaultdict(list)
    for sample in samples:
        hours[int(sample.at) // _HOUR].append(sample)
    return [merged(hours[hour]) for hour in sorted(hours)]


def valid(blocks: Iterable[SampleBlock]) -> list[SampleBlock]:
    """The blocks that count, by time."""
    known = set(blocks)
    days = {block.begin for block in known if block.seconds == DAY}
    return sorted(block for block in known if block.seconds == DAY or block.day not in days)
