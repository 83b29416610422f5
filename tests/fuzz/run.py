"""One damaged event after the other through the decoder; see :func:`decode`."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog import events as ev
from shardmerge.worker.binlog import gtid_events, query_text, xa_events
from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.core.batch import Batch
from shardmerge.worker.core.lane_hash import Bucket
from shardmerge.worker.core.row_change import Literals
from tests.fuzz.corpus import Source, sources
from tests.fuzz.damage import damaged
from tests.support.binlog import only

_PARSERS: tuple[Callable[[bytes, bool, str], object], ...] = (
    query_text.parse_query, ev.parse_rotate, gtid_events.parse_gtid, gtid_events.parse_gtid_list,
    xa_events.parse_xa_prepare,
)  # fmt: skip

_TEXT = rb"'(?:[^'\\]|\\.)*'"
_LITERAL = re.compile(
    rb"NULL|-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?|(?:_[a-z0-9]+ )?X'(?:[0-9A-F]{2})*'|" + _TEXT +
    rb"|/\*!50700 JSON_REPLACE\(\*/" + _TEXT + rb"/\*!50700 (?:,_utf8mb4 X'(?:[0-9a-f]{2})*',-?[0-9.]+)+\)\*/",
    re.DOTALL,
)  # fmt: skip
"""Whatever a literal says, it must end where it ends: nothing in it may become SQL."""


def outcome(seed: int, number: int) -> str:
    """What became of event ``number``: "rows", "nothing", "parsed" or the name of a coded error.

    Any other exception is a fault of the decoder.
    """
    pick = random.Random(f"{seed}/{number}")
    source = pick.choice(sources())
    place = pick.choice(source.rows if pick.random() < 0.8 else range(len(source.events)))
    event = damaged(pick, source.events[place], source.events, source.checksum)
    try:
        if pick.random() < 0.03:
            return decode(pick, source, place, event, damaged(pick, source.format_description, source.events, True))
        if pick.random() < 0.1:
            pick.choice(_PARSERS)(event, source.checksum, "s1")
            return "parsed"
        return decode(pick, source, place, event, source.format_description)
    except ShardmergeError as error:
        assert error.spec.error_class in ("decode", "config", "replicate"), error
        return error.spec.name


def decode(pick: random.Random, source: Source, place: int, event: bytes, format_description: bytes) -> str:
    """Decode the damaged event behind its table map, which is damaged too at times; then the event behind it."""
    block = [event]
    before = source.maps[place]
    if 0 <= before != place:
        table_map = source.events[before]
        if pick.random() < 0.1:
            table_map = damaged(pick, table_map, source.events, source.checksum)
        block.insert(0, table_map)
    if pick.random() < 0.5 and place + 1 < len(source.events):
        block.append(source.events[place + 1])
    lanes = pick.choice((1, 1, 2, 3))
    bucket = Bucket(pick.randrange(lanes), lanes)
    decoder = BlockDecoder(only(source.plan), pick.random() < 0.2, "s1", bucket)
    decoder.open(format_description)
    data = b"".join(block)
    skip = pick.choice((0, 0, 0, 1, 2))
    if pick.random() < 0.3:
        batch = Batch(bucket.lane, bucket.lanes)
        assert decoder.pick(data, skip, "mysql-bin.000001", batch) == len(block) or source.checksum is False
        return "rows" if batch.changes else "nothing"
    changes = decoder.decode(data, skip)
    for change in changes[:2]:
        _check(change.before)
        _check(change.after)
        _check(change.source_key_before)
        _check(change.source_key_after)
    return "rows" if changes else "nothing"


def _check(literals: Literals) -> None:
    for literal in literals:
        assert _LITERAL.fullmatch(literal), literal


def run(seed: int, first: int, count: int, reached: Callable[[int], None]) -> Counter[str]:
    """Events ``first`` to ``first + count - 1``; ``reached`` is told of each before it is tried."""
    found: Counter[str] = Counter()
    for number in range(first, first + count):
        reached(number)
        try:
            found[outcome(seed, number)] += 1
        except BaseException as fault:
            raise AssertionError(f"event {number} of seed {seed}: {type(fault).__name__}") from fault
    return found
