"""The plans by which the rows of an offset's tables are decoded, made when a table's rows arrive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql.types import StructType

from shardmerge.proto import errors
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.datasource.plan.read_plan import ReadOptions, ReadSource
from shardmerge.worker.datasource.planning import plan_table
from shardmerge.worker.datasource.stream.model.offset import StreamTable, TableName
from shardmerge.worker.datasource.stream.tables.stream_schema import StreamedTable, image_fields, streamed_table


@dataclass(slots=True)
class StreamPlans:
    """The plans of one source's ``tables``. ``position``: where they are valid, for messages."""

    source: ReadSource
    options: ReadOptions
    schema: StructType
    tables: Mapping[TableName, StreamTable]
    position: SourcePosition
    _numbers: dict[TableName, int] = field(init=False)
    _made: dict[int, StreamedTable] = field(init=False, default_factory=dict[int, StreamedTable])
    versions: list[int] = field(init=False)

    def __post_init__(self) -> None:
        names = sorted(self.tables)
        self._numbers = {name: number for number, name in enumerate(names)}
        self.versions = [self.tables[name].version for name in names]

    def resolve(self, schema: str, name: str) -> TablePlan | None:
        """The decoder's plan of a table. Raises STREAM_STRUCTURE, STREAM_SCHEMA and the errors of the rules."""
        known = self.tables.get((schema, name))
        if known is None:
            if not self.source.sends_to(self.options.target, schema, name):
                return None
            known = StreamTable(None, reason="the checkpoint does not have the table")
        if known.structure is None:
            raise errors.read.STREAM_STRUCTURE(
                source=self.source.source, schema=schema, table=name, position=self.position, reason=known.reason
            )
        return self.of(self._numbers[schema, name]).read.plan

    def of(self, number: int) -> StreamedTable:
        """A table by its number, which is also the ``shard`` of its plan."""
        made = self._made.get(number)
        if made is None:
            name = sorted(self.tables)[number]
            structure = self.tables[name].structure
            assert structure is not None  # noqa: S101 - for the type checker
            plan = plan_table(number, structure, self.source, with_rows=False)
            made = streamed_table(number, plan, self.schema, self.position, self.options.columns)
            self._made[number] = made
        return made

    def complete(self, number: int) -> StreamedTable:
        """A table that has all columns of the stream. Raises STREAM_SCHEMA."""
        found = self.of(number)
        for field_, place in zip(image_fields(self.schema), found.places, strict=True):
            if place < 0:
                table = found.read.plan.table
                raise errors.read.STREAM_SCHEMA(
                    source=self.source.source,
                    position=self.position,
                    column=field_.name,
                    schema=table.schema,
                    table=table.name,
                    reason="the table lacks it",
                )
        return found

    def check(self) -> None:
        """Make all plans. Raises what :meth:`resolve` raises, but not for unknown structures."""
        for name, number in self._numbers.items():
            if self.tables[name].structure is not None:
                self.of(number)
