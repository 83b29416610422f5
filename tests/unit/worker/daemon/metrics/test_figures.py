"""Tests what several comparisons of one subtask show together."""

from __future__ import annotations

from shardmerge.proto import compare_pb2 as pb
from shardmerge.worker.daemon.metrics.figures import Compared

_ALL = pb.CompareRequest(task="orders")
_SOME = pb.CompareRequest(task="orders", tables=["s.a"])
_REFERENCES = pb.CompareRequest(task="orders", references=True)
_SOME_REFERENCES = pb.CompareRequest(task="orders", references=True, tables=["s.a"])


def _table(name: str, rows: int = 0, **fields: int | str) -> pb.ComparedTable:
    return pb.ComparedTable(source_table=name, target_table="t.t", rows=rows, **fields)  # type: ignore[arg-type]


_BOTH = (_table("s.a", 100, missing=1, extra=2), _table("s.b", 50, missing=4, different=3, unjudged=5))


def _kinds(compared: Compared) -> dict[str, int]:
    """The kinds with differences; -1: the kind is absent."""
    kinds = ("missing", "extra", "different", "repaired", "unjudged", "orphan")
    figures = compared.figures().differences
    assert set(figures) <= set(kinds)
    return {kind: count for kind in kinds if (count := figures.get(kind, -1))}


def test_a_comparison_of_one_table_replaces_the_figures_of_that_table() -> None:
    compared = Compared().after(_ALL, _BOTH, 70.0).after(_SOME, [_table("s.a", 101, missing=1, repaired=1)], 80.0)
    figures = compared.figures()
    assert (figures.rows, figures.finished) == (151, 70.0), "the time is that of the comparison of all tables"
    assert _kinds(compared) == {"missing": 5, "different": 3, "repaired": 1, "unjudged": 5, "orphan": -1}
    assert compared.after(_ALL, [_table("s.b", 50)], 90.0).figures().rows == 50, "s.a has gone"


def test_a_table_that_was_not_compared_this_time_keeps_its_figures() -> None:
    compared = Compared().after(_ALL, _BOTH, 70.0)
    assert compared.after(_SOME, [_table("s.a", not_compared="it is copied")], 80.0) == compared


def test_a_comparison_of_one_table_alone_shows_nothing() -> None:
    assert Compared().after(_SOME, _BOTH[:1], 70.0) == Compared()
    assert Compared().after(_SOME_REFERENCES, _BOTH[:1], 70.0) == Compared()


def test_a_comparison_of_references_leaves_the_differences_of_rows() -> None:
    orphans = [_table("s.a", reference="r", orphans=6, unjudged=1), _table("s.b", reference="r", orphans=1)]
    before = Compared().after(_ALL, _BOTH, 70.0)
    compared = before.after(_REFERENCES, orphans, 80.0)
    assert _kinds(compared) == {"missing": 5, "extra": 2, "different": 3, "unjudged": 6, "orphan": 7}
    figures = compared.figures()
    assert (figures.rows, figures.finished) == (150, 70.0)
    repaired = compared.after(_SOME_REFERENCES, [_table("s.a", reference="r")], 90.0)
    assert _kinds(repaired)["orphan"] == 1
    alone = Compared().after(_REFERENCES, orphans, 80.0)
    assert _kinds(alone) == {
        **dict.fromkeys(("missing", "extra", "different", "repaired"), -1),
        "unjudged": 1,
        "orphan": 7,
    }
