"""The reader of a stream, for Spark: offsets in the process of the query, rows in the tasks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from shardmerge.proto import errors
from shardmerge.worker.core import inflation
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.datasource.partition_reader import ShardPartition, ShardsReader
from shardmerge.worker.datasource.plan.read_plan import ReadPlan, SourcePlan
from shardmerge.worker.datasource.stream.follow.first_offset import first_offset
from shardmerge.worker.datasource.stream.follow.follower import SourceFollower
from shardmerge.worker.datasource.stream.model.batch_end import parts_of
from shardmerge.worker.datasource.stream.model.offset import Offset, SourceOffset, from_json, to_json
from shardmerge.worker.datasource.stream.model.options import StreamOptions
from shardmerge.worker.datasource.stream.rows.change_rows import ChangesPart, HistoryPart, read_changes, read_history
from shardmerge.worker.datasource.stream.tables.plans import StreamPlans
from shardmerge.worker.datasource.stream.tables.stream_schema import image_fields
from shardmerge.worker.datasource.way_out import way_out_shown
from shardmerge.worker.relay.log.walk_state import NO_LIMIT

_IDLE_SECONDS = 0.05
"""Time between two looks at idle sources: Spark asks at once again."""


class ChangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark makes one in the process of the query, and pickles another one into the tasks."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        inflation.use(options.read.most_inflated)
        self._followers: dict[str, SourceFollower] = {}
        self._targets: dict[str, SourcePosition] | None = None
        self._wants_targets = False

    # In the process of the query.

    def initialOffset(self) -> dict[str, Any]:
        """The same each time: Spark keeps only the ends of batches, and asks again before it repeats the first one."""
        return to_json({})

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self._options.most_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        self._wants_targets = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with way_out_shown():
            begin = self._parsed(start)
            if not begin:
                return to_json(self._first())
            most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else NO_LIMIT
            ends = {name: self._follower(name).end(offset) for name, offset in begin.items()}
            if self._wants_targets and self._targets is None:
                self._targets = ends
            if self._targets is not None:
                ends = {
                    name: min(end, self._targets[name], key=SourcePosition.file_order) for name, end in ends.items()
                }
            found = {name: self._follower(name).next_offset(offset, most, ends[name]) for name, offset in begin.items()}
            if found == begin:
                if self._targets is None:
                    time.sleep(_IDLE_SECONDS)
                return start
            return to_json(found)

    def _first(self) -> dict[str, SourceOffset]:
        """The end of the first batch, which has the history, or nothing."""
        found = {source.source: first_offset(source, self._options) for source in self._options.read.sources}
        self._check(found)
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with way_out_shown():
            begin, finish = self._parsed(start), self._parsed(end)
            self._check(finish)
            if not begin:
                return list(self._history({name: one for name, one in finish.items() if one.is_snapshot}))
            return [part for name, offset in begin.items() for part in self._changes(name, offset, finish[name])]

    def stop(self) -> None:
        for follower in self._followers.values():
            follower.close()
        self._followers.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_schema": self._schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_options"], state["_schema"])

    # In the tasks.

    def read(self, partition: InputPartition) -> Iterator[Any]:
        arrow_schema = to_arrow_schema(self._schema, timezone="UTC")
        with way_out_shown():
            if isinstance(partition, ChangesPart):
                yield from read_changes(partition, self._schema, arrow_schema)
            elif isinstance(partition, HistoryPart):
                yield from read_history(partition, self._schema, arrow_schema)

    def _parsed(self, made: Mapping[str, Any]) -> dict[str, SourceOffset]:
        offset = from_json(made)
        names = {source.source for source in self._options.read.sources}
        if offset and offset.keys() != names:
            reason = f"it has the sources {', '.join(sorted(offset))}, but the options have {', '.join(sorted(names))}"
            raise errors.read.STREAM_OFFSET(reason=reason)
        return offset

    def _follower(self, name: str) -> SourceFollower:
        if name not in self._followers:
            self._followers[name] = SourceFollower(self._options.source(name), self._options, self._schema)
        return self._followers[name]

    def _check(self, offset: Offset) -> None:
        """Raises STREAM_SCHEMA if tables do not fit the stream's columns."""
        for name, place in offset.items():
            source = self._options.source(name)
            StreamPlans(source, self._options.read, self._schema, place.tables, place.position).check()

    def _changes(self, name: str, begin: SourceOffset, end: SourceOffset) -> Iterator[ChangesPart]:
        source, options = self._options.source(name), self._options.read
        before = begin.tables if end.is_statement else None
        tables = end.tables if end.is_statement else begin.tables
        for first, last in parts_of(begin.position, end.position, end.cuts):
            made = begin.made if first.file == begin.position.file else 0
            yield ChangesPart(source, options, first, last, made, tables, before)

    def _history(self, offset: Offset) -> Iterator[HistoryPart]:
        """The chunks of the tables at the snapshot's positions."""
        if not offset:
            return
        fields = image_fields(self._schema)
        sources: list[SourcePlan] = []
        for name, place in offset.items():
            source = self._options.source(name)
            plans = StreamPlans(source, self._options.read, self._schema, place.tables, place.position)
            tables = [plans.complete(number) for number in range(len(place.tables))]
            sources.append(SourcePlan(source, place.position, place.made, tuple(table.read for table in tables)))
        plan = ReadPlan(uuid.uuid4().hex, tuple(sources), StructType(fields), self._options.read)
        names = list(offset)
        for part in ShardsReader(plan, plan.schema).partitions():
            if isinstance(part, ShardPartition):
                yield HistoryPart(plan, part.pieces, offset[names[part.pieces[0].source]].tables)
