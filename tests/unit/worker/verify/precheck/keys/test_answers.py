"""Keys of several shard tables, brought together."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.master.precheck.key_merge import (
    KeyStream,
    groups,
    opened,
    overlapping,
    prove,
    ranges_disjoint,
    sharing_a_range,
)
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.verify.precheck.keys.key_proof import KeyEntry, batches, merged, number_order

_NUMBERS = st.integers(-(1 << 63), (1 << 64) - 1)


def _shard(source: str, table: str, first: int | None = None, last: int = 0, **more: object) -> pb.KeyShard:
    made = pb.KeyShard(
        source=source, schema="s", table=table, target_schema="m", target_table="t", columns=["id"], form="number",
        unique=True,
    )  # fmt: skip
    if first is not None:
        made.first, made.last = str(first), str(last)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_groups() -> None:
    assert groups([_shard("s1", "a")]) == []  # nobody to collide with
    [alone] = groups([_shard("s1", "a", unique=False)])
    assert not ranges_disjoint(alone)
    [group] = groups([_shard("s1", "a"), _shard("s2", "a", target_table="T"), _shard("s2", "b", target_table="other")])
    assert (group.target_name, group.sources, len(group.shards)) == ("m.t", ("s1", "s2"), 2)


def test_shard_tables_with_other_extracted_texts_in_the_key_do_not_meet() -> None:
    def of(*texts: str) -> list[list[str]]:
        shards = [_shard("s1", f"t{at}", form="") for at, _ in enumerate(texts)]
        for shard, text in zip(shards, texts, strict=True):
            if text:
                shard.extracted.append(text)
        return [[shard.table for shard in group.shards] for group in groups(shards)]

    assert of("1", "2") == []
    assert of("1", "2", "1") == [["t0", "t2"]]
    assert of("1", "2", "") == [["t0", "t1", "t2"]]  # a worker of an earlier version does not report its text


def test_ranges() -> None:
    def of(*shards: pb.KeyShard) -> tuple[bool, list[str]]:
        [group] = groups(shards)
        return ranges_disjoint(group), sharing_a_range(group)

    assert of(_shard("s1", "a", 1, 10), _shard("s2", "b", 11, 20)) == (True, [])
    assert of(_shard("s1", "a", 1, 11), _shard("s2", "b", 11, 20)) == (False, [])
    assert of(_shard("s1", "a", 1, 10), _shard("s2", "b")) == (False, [])
    assert of(_shard("s1", "a", -5, 3), _shard("s2", "b", -20, -6)) == (True, [])
    assert of(_shard("s1", "a", 1, 10, unique=False), _shard("s2", "b", 11, 20)) == (False, [])
    shared = of(_shard("s1", "a", 1, 10, mapped=True), _shard("s2", "b", 1, 10, mapped=True))
    assert shared == (False, ["s1 s.a", "s2 s.b"])
    [group] = groups([_shard("s1", "a", 1, 10), _shard("s2", "b")])
    assert overlapping(group) is None


@given(st.lists(st.tuples(_NUMBERS, _NUMBERS)))
def test_bytes_sort_as_the_numbers_do(pairs: list[tuple[int, int]]) -> None:
    assert sorted(pairs, key=number_order) == sorted(pairs)
    assert len({number_order(pair) for pair in pairs}) == len(set(pairs))


@given(st.lists(st.lists(st.integers(0, 50)), max_size=5), st.integers(1, 3))
def test_what_is_there_twice_is_found(tables: list[list[int]], sources: int) -> None:
    """Compared with counting all keys."""
    streams: list[KeyStream] = []
    for source in range(sources):
        mine = tables[source::sources]
        entries = merged([_ascending(number, keys) for number, keys in enumerate(mine)])
        names = [f"t{number}" for number in range(len(mine))]
        stream = opened(f"s{source}", batches("numbers", names, entries))
        assert stream is not None
        streams.append(stream)
    everything = [key for keys in tables for key in keys]
    proof = prove(streams)
    assert proof.read == len(everything)
    assert proof.twice == sum(everything.count(key) > 1 for key in set(everything))
    assert len(proof.shown) == min(proof.twice, 10)


def _ascending(table: int, keys: list[int]) -> Iterator[KeyEntry]:
    return iter([KeyEntry(number_order([key]), table, str(key)) for key in sorted(keys)])


def test_a_key_without_end_takes_no_memory() -> None:
    def same() -> Iterator[pb.KeyBatch]:
        yield pb.KeyBatch(form="f", tables=["t"])
        for _ in range(500):
            yield pb.KeyBatch(orders=[b"x"] * 1000, shards=[0] * 1000, shown=["x"] * 1000)

    stream = opened("s1", same())
    assert stream is not None
    tracemalloc.start()
    proof = prove([stream])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000
    assert (proof.read, proof.twice, len(proof.shown[0])) == (500_000, 1, len("x in " + ", ".join(["s1 t"] * 10)))


def test_a_stream_out_of_order_is_no_proof() -> None:
    entries = iter([KeyEntry(b"b", 0, "b"), KeyEntry(b"a", 0, "a")])
    with pytest.raises(ShardmergeError, match="KeyOrder"):
        list(batches("f", ["t"], entries))
    assert opened("s1", iter(())) is None
