"""Makes literals of rows that were read by SELECT: the same bytes as the decoder makes of the same values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from shardmerge.worker.binlog.rows.column_codec import ColumnCodec
from shardmerge.worker.core.row_change import Literals
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import TablePlan

_NO_TABLE = Table("", "", (), (), "", (), False, "")
_TEXT = Column("", ValueKind.STRING, "text", True, charset="utf8mb4")


@lru_cache(maxsize=1024)
def _plain(column: Column) -> ColumnCodec:
    return ColumnCodec(_NO_TABLE, column, 0, -1, None, "")


def quote_text(text: bytes) -> bytes:
    r"""``text`` between single quotes, with a backslash before each ``\``, ``'`` and NUL.

    For a server whose sql_mode lacks NO_BACKSLASH_ESCAPES, and text in UTF-8.
    """
    return _plain(_TEXT).quoted(text)


def literal(column: Column, text: bytes | None) -> bytes:
    """The literal of one value, without a mapping. ``text``: as the server sends it for the select expression.

    Raises errors.decode.UNREADABLE_VALUE, UNSUPPORTED_TYPE.
    """
    return _plain(column).of_text(text, False)


class RowWriter:
    """Literals of one shard table's rows; one thread at a time. ``source`` names the source in errors."""

    def __init__(self, plan: TablePlan, source: str) -> None:
        self._codecs = [
            ColumnCodec(
                plan.table, written.column, slot, -1, written.mapping, source, plan.text_as_utf8, slot in plan.key
            )
            for slot, written in enumerate(plan.columns)
        ]
        self._key = plan.source_key

    @property
    def codecs(self) -> list[ColumnCodec]:
        """One per written column, in order."""
        return self._codecs

    def literals(self, values: Sequence[bytes | None]) -> Literals:
        """Mapped literals of one row; ``values``: the raw text of the plan's columns, in order.

        Raises errors.decode.UNREADABLE_VALUE, NO_CHARACTER, SECOND_CODE, errors.config.ID_OVERFLOW.
        """
        return tuple([codec.of_text(text, True) for codec, text in zip(self._codecs, values, strict=True)])

    def source_key(self, values: Sequence[bytes | None]) -> Literals:
        """Literals of the key columns at the source, before mapping; ``values`` as for :meth:`literals`."""
        return tuple([self._codecs[index].of_text(values[index], False) for index in self._key])
