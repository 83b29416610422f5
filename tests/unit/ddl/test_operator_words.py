"""An operator's words on statements hold for the place that was named, in the binlog of the server that was meant."""

from __future__ import annotations

from proto.state_pb2 import BinlogOp
from worker.ddl.operator import Word, word_on
from worker.position import SourcePosition


def _op(server: str, text: str, kind: BinlogOp.Kind = BinlogOp.KIND_REPLACE) -> BinlogOp:
    return BinlogOp(kind=kind, file="bin.000003", pos=150, statements=text, server=server)


def _word(*ops: BinlogOp, server: str, file: str = "bin.000003", begin: int = 100) -> Word | None:
    first, last = (SourcePosition(file, at, server=server) for at in (begin, begin + 100))
    return word_on(ops, first, last, 0)


def test_a_word_is_about_one_place() -> None:
    assert _word(_op("", "SELECT 1"), server="a") == Word(("SELECT 1",), own=False)
    assert _word(_op("", "SELECT 1", BinlogOp.KIND_INJECT), server="a") == Word(("SELECT 1",), own=True)
    assert _word(_op("", "SELECT 1"), server="a", file="bin.000004") is None
    assert _word(_op("", "SELECT 1"), server="a", begin=151) is None


def test_a_place_of_another_server_is_another_place() -> None:
    both = _op("a", "SELECT 1"), _op("b", "SELECT 2")
    assert _word(*both, server="a") == Word(("SELECT 1",), own=False)
    assert _word(*both, server="b") == Word(("SELECT 2",), own=False)
    assert _word(*both, server="c") is None
    assert _word(*both, server="") == Word(("SELECT 1",), own=False), "of a relay log that names no server"
