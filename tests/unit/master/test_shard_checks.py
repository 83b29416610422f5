"""Which structures the master sends together to be compared."""

from __future__ import annotations

from shardmerge.master.precheck.shard_checks import batches
from shardmerge.proto import worker_pb2 as pb


def one(source: str, target: str, size: int = 10) -> pb.ShardStructure:
    return pb.ShardStructure(source=source, target=target, structure="x" * size)


def test_only_what_can_contradict_is_sent() -> None:
    found = [one("a", "t"), one("b", "t"), one("a", "alone"), one("b", "u"), one("c", "u")]
    assert [[(each.source, each.target) for each in part] for part in batches(found, ["a"])] == [
        [("a", "t"), ("b", "t")]
    ]
    assert list(batches([], ["a"])) == []


def test_a_request_is_bounded_and_a_target_is_not_divided() -> None:
    found = [one(source, target, 3 << 20) for target in ("t", "u", "v") for source in ("a", "b")]
    assert [[each.target for each in part] for part in batches(found, ["a"])] == [[name] * 2 for name in "tuv"]
