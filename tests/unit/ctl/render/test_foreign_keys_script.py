"""Tests the script of foreign keys: equal keys of several sources once, and comments for what is no statement."""

from __future__ import annotations

from shardmerge.ctl.render.foreign_keys_script import script
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import worker_pb2


def answer(*keys: worker_pb2.TargetForeignKey) -> pb.ShowTargetsResponse:
    """Return an answer with one source for each key."""
    return pb.ShowTargetsResponse(
        sources=[
            pb.SourceTargets(
                source=f"s{number}", targets=[worker_pb2.TargetSchema(target="`m`.`orders`", foreign_keys=[key])]
            )
            for number, key in enumerate(keys)
        ]
    )


def key(**values: object) -> worker_pb2.TargetForeignKey:
    named = {"reference": "a to b", "tables": ["s.o_1"], "count": 9, "name": "k", "add": "ADD", "orphans": "SELECT"}
    return worker_pb2.TargetForeignKey(**{**named, **values})  # pyright: ignore[reportArgumentType]


def statements(*keys: worker_pb2.TargetForeignKey) -> list[str]:
    lines = script(answer(*keys)).splitlines()
    return [line for line in lines if line and not line.startswith("--")][1:]


def test_equal_keys_of_two_sources_are_added_once() -> None:
    assert statements(key(), key()) == ["SELECT;", "ADD;"]
    assert "of 18 shard tables (s0: s.o_1 and 8 more, s1:" in script(answer(key(), key()))


def test_no_statement_for_what_is_left_out_differs_or_exists() -> None:
    assert not statements(key(), key(add="", left_out="why\nDROP"))
    assert not statements(key(), key(add="ANOTHER"))
    assert not statements(key(exists=True))
    assert "left out: why" in script(answer(key(left_out="why\nDROP")))
