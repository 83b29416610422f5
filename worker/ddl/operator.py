"""An operator's word on a statement, as the driver finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from proto.lexer import tokens
from proto.state_pb2 import BinlogOp
from worker.position import SourcePosition

Ops = Callable[[], tuple[BinlogOp, ...]]
"""All that was said by now about statements of the source's binlog."""


@dataclass(frozen=True, slots=True)
class Word:
    """``texts``: statements to run at the target, ``own``: and then the statement itself."""

    texts: tuple[str, ...]
    own: bool


def word_on(ops: tuple[BinlogOp, ...], begin: SourcePosition, end: SourcePosition, sql_mode: int) -> Word | None:
    """What was said of the statement whose event group lies from ``begin`` to ``end``; None: nothing. Pure."""
    for op in ops:
        if op.server and begin.server and op.server != begin.server:
            continue  # a place of another server's binlog, from before or behind a switch
        if op.file == begin.file and begin.pos <= op.pos < max(end.pos, begin.pos + 1):
            return Word(tuple(split(op.statements, sql_mode)), op.kind == BinlogOp.KIND_INJECT)
    return None


def split(text: str, sql_mode: int) -> Iterator[str]:
    """The statements of a text, which are separated by ";"."""
    begin = 0
    for token in tokens(text, sql_mode):
        if token.is_symbol(";"):
            if text[begin : token.start].strip():
                yield text[begin : token.start].strip()
            begin = token.end
    if text[begin:].strip():
        yield text[begin:].strip()
