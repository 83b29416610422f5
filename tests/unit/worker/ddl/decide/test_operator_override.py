"""An operator's words on statements hold for the place that was named, in the binlog of the server that was meant."""

from __future__ import annotations

from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.stored_override import OverrideKind, StoredOverride
from shardmerge.worker.ddl.decide.operator_override import OperatorOverride, override_at


def _op(server: str, text: str, kind: OverrideKind = OverrideKind.REPLACE) -> StoredOverride:
    return StoredOverride(kind=kind, file="bin.000003", pos=150, statements=text, server=server)


def _word(*ops: StoredOverride, server: str, file: str = "bin.000003", begin: int = 100) -> OperatorOverride | None:
    first, last = (SourcePosition(file, at, server=server) for at in (begin, begin + 100))
    return override_at(ops, first, last, 0)


def test_an_override_applies_to_one_position() -> None:
    assert _word(_op("", "SELECT 1"), server="a") == OperatorOverride(("SELECT 1",), runs_original=False)
    assert _word(_op("", "SELECT 1", OverrideKind.INJECT), server="a") == OperatorOverride(
        ("SELECT 1",), runs_original=True
    )
    assert _word(_op("", "SELECT 1"), server="a", file="bin.000004") is None
    assert _word(_op("", "SELECT 1"), server="a", begin=151) is None
    assert _word(_op("", "SELECT 1"), server="a", begin=50) is None, "the event group ends there"


def test_a_position_of_another_server_does_not_match() -> None:
    both = _op("a", "SELECT 1"), _op("b", "SELECT 2")
    assert _word(*both, server="a") == OperatorOverride(("SELECT 1",), runs_original=False)
    assert _word(*both, server="b") == OperatorOverride(("SELECT 2",), runs_original=False)
    assert _word(*both, server="c") is None
    assert _word(*both, server="") == OperatorOverride(("SELECT 1",), runs_original=False), (
        "of a relay log that names no server"
    )
