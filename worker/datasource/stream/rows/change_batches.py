"""Makes Arrow batches of the stream's rows: from decoded changes, statements and the rows of a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.row_change import Literals, RowChange
from shardmerge.worker.core.table import ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan
from shardmerge.worker.datasource.arrow_library import pa
from shardmerge.worker.datasource.stream.binlog.transactions import Transaction
from shardmerge.worker.datasource.stream.model.offset import TableName
from shardmerge.worker.datasource.stream.tables.plans import StreamPlans
from shardmerge.worker.datasource.stream.tables.stream_schema import StreamedTable
from shardmerge.worker.datasource.values.arrow_values import ValueReader, texts_array
from shardmerge.worker.datasource.values.literal_columns import column_texts
from shardmerge.worker.datasource.values.literal_texts import text_of

np: Any = numpy  # without types

_OPS = ("", "insert", "update", "delete")
"""By ChangeKind."""

_OTHER_TEXTS = frozenset({ValueKind.ENUM, ValueKind.SET, ValueKind.JSON})
"""Kinds whose literals are not the server's texts in quotes."""


@dataclass(frozen=True, slots=True)
class RowMaker:
    """``schema``: the stream's, of Arrow."""

    plans: StreamPlans
    schema: Any

    @property
    def image_type(self) -> Any:
        return self.schema.field("after").type

    def changes(
        self, changes: Sequence[RowChange], transactions: Sequence[Transaction], file: str, counted: int, shift: int
    ) -> Any:
        """Decoded changes of one block. ``transactions``: that in which the block begins, then those that begin in it.
        ``counted``: the changes that the first one had in earlier blocks. ``shift``: rows before them in each one."""
        count = len(changes)
        shards = np.fromiter((change.plan.shard for change in changes), dtype=np.int32, count=count)
        bytes_at = np.fromiter((change.byte for change in changes), dtype=np.int64, count=count)
        kinds = np.fromiter((change.kind for change in changes), dtype=np.int8, count=count)
        starts = np.array([transaction.at for transaction in transactions[1:]], dtype=np.int64)
        which = np.searchsorted(starts, bytes_at, side="right")
        first = np.searchsorted(which, np.arange(len(transactions)), side="left")
        sequence = np.arange(count) - first[which] + shift
        sequence[which == 0] += counted
        before, after, tables = self._images(changes, shards)
        place = pa.array(which)
        begins = pa.array([transaction.begin for transaction in transactions], pa.int64()).take(place)
        gtids = pa.array([transaction.gtid or None for transaction in transactions], pa.string())
        names = [transaction.gtid or f"{file}:{transaction.begin}" for transaction in transactions]
        times = pa.array([one.commit_micros for one in transactions], pa.timestamp("us", tz="UTC"))
        numbers = pa.array(shards)
        return self._batch(
            count,
            {
                "op": pa.array(_OPS, pa.string()).take(pa.array(kinds)),
                "before": before,
                "after": after,
                "source_schema": pa.array([schema for schema, _ in tables], pa.string()).take(numbers),
                "source_table": pa.array([name for _, name in tables], pa.string()).take(numbers),
                "position": self._positions(_repeated(file, count), begins),
                "gtid": gtids.take(place),
                "commit_time": times.take(place),
                "transaction_id": pa.array(names, pa.string()).take(place),
                "sequence": pa.array(sequence, pa.int64()),
                "schema_version": pa.array(self.plans.versions, pa.int32()).take(numbers),
            },
        )

    def statement(self, tables: Sequence[tuple[TableName, int]], text: str, file: str, place: Transaction) -> Any:
        """A statement that changes ``tables``, which then have these schema versions: one row for each."""
        count = len(tables)
        name = place.gtid or f"{file}:{place.begin}"
        return self._batch(
            count,
            {
                "op": _repeated("ddl", count),
                "source_schema": pa.array([schema for (schema, _), _ in tables], pa.string()),
                "source_table": pa.array([table for (_, table), _ in tables], pa.string()),
                "position": self._positions(_repeated(file, count), pa.array([place.begin] * count, pa.int64())),
                "gtid": pa.array([place.gtid or None] * count, pa.string()),
                "commit_time": pa.array([place.commit_micros] * count, pa.timestamp("us", tz="UTC")),
                "transaction_id": _repeated(name, count),
                "sequence": pa.array(range(count), pa.int64()),
                "schema_version": pa.array([version for _, version in tables], pa.int32()),
                "statement": _repeated(text, count),
            },
        )

    def history(self, rows: Any, table: TableName, version: int, position: SourcePosition) -> Any:
        """Rows of a snapshot. ``rows``: a batch with the columns of the merged table."""
        count = rows.num_rows
        return self._batch(
            count,
            {
                "op": _repeated("insert", count),
                "after": pa.StructArray.from_arrays(rows.columns, fields=list(self.image_type)),
                "source_schema": _repeated(table[0], count),
                "source_table": _repeated(table[1], count),
                "position": self._positions(
                    _repeated(position.file, count), pa.array([position.pos] * count, pa.int64())
                ),
                "schema_version": pa.array([version] * count, pa.int32()),
                "is_snapshot": _repeated(True, count),
            },
        )

    def _batch(self, count: int, columns: dict[str, Any]) -> Any:
        """``columns``: without those that have NULL, or one value for the source, in each row."""
        columns = {
            "source_id": _repeated(self.plans.source.source, count),
            "is_snapshot": _repeated(False, count),
            **columns,
        }
        arrays = [
            columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _positions(self, files: Any, begins: Any) -> Any:
        return pa.StructArray.from_arrays([files, begins], fields=list(self.schema.field("position").type))

    def _images(self, changes: Sequence[RowChange], shards: Any) -> tuple[Any, Any, list[TableName]]:
        """The rows before and after each change, and the names of the tables by their numbers."""
        before: list[Any] = []
        after: list[Any] = []
        order: list[Any] = []
        names = sorted(self.plans.tables)
        for shard in np.unique(shards):
            places = np.flatnonzero(shards == shard)
            chosen: list[int] = places.tolist()
            own = changes if len(chosen) == len(changes) else [changes[at] for at in chosen]
            table = self.plans.of(int(shard))
            before.append(self._structs(table, [change.before for change in own]))
            after.append(self._structs(table, [change.after for change in own]))
            order.append(places)
        if len(order) == 1:
            return before[0], after[0], names
        inverse = pa.array(np.argsort(np.concatenate(order), kind="stable"))
        return pa.concat_arrays(before).take(inverse), pa.concat_arrays(after).take(inverse), names

    def _structs(self, table: StreamedTable, images: list[Literals]) -> Any:
        """The values of row images; an image without literals is NULL."""
        count = len(images)
        absent = np.fromiter((not image for image in images), dtype=bool, count=count)
        if absent.all():
            return pa.nulls(count, self.image_type)
        columns = image_columns(self, table, _TextsOf(table, images), count)
        mask = pa.array(absent) if absent.any() else None
        return pa.StructArray.from_arrays(columns, fields=list(self.image_type), mask=mask)


@dataclass(frozen=True, slots=True)
class _TextsOf:
    """The texts of row images, by slot."""

    table: StreamedTable
    images: list[Literals]

    def __getitem__(self, slot: int) -> Any:
        column: ColumnPlan = self.table.read.plan.columns[slot]
        if column.column.kind in _OTHER_TEXTS:
            convert = text_of(column.column)
            return texts_array([convert(image[slot]) if image else None for image in self.images])
        offsets, values, marks, nulls = column_texts(self.images, slot)
        count = len(self.images)
        valid = None
        if nulls:
            bits = np.packbits(np.frombuffer(marks, dtype=np.uint8), bitorder="little")
            valid = pa.py_buffer(bits.tobytes())
        return pa.Array.from_buffers(pa.binary(), count, [valid, pa.py_buffer(offsets), pa.py_buffer(values)], nulls)


def image_columns(maker: RowMaker, table: StreamedTable, texts: Any, count: int) -> list[Any]:
    """The columns of the merged table. ``texts``: of the columns that are read, by slot."""
    made: list[Any] = []
    for field, place in zip(maker.image_type, table.places, strict=True):
        if place < 0:
            made.append(pa.nulls(count, field.type))
            continue
        value = table.read.values[place]
        reader = ValueReader(
            maker.plans.source.source,
            table.read.plan.table,
            value,
            field.type,
            maker.plans.options.zero_is_null,
        )
        made.append(reader.constant(count) if value.slot < 0 else reader.read(texts[value.slot]))
    return made


def _repeated(value: object, count: int) -> Any:
    return pa.repeat(pa.scalar(value), count)
