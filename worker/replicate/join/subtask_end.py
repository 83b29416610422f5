"""The configured end of a subtask some of whose tables are away from its own lanes: no table may be read, or have rows
applied, after it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.replicate.bounds.stream_limit import StreamLimit


@dataclass(frozen=True, slots=True)
class SubtaskEnd:
    """``limit``: of both streams of the subtask. ``shown``: the end as it is configured."""

    task: str
    source: str
    shown: str
    limit: StreamLimit

    def checker(self, tables: Collection[str]) -> Callable[[RelayOffset], None]:
        """Raises COPY_OF_ENDING for an offset after the end: there the rows of ``tables`` must not be read."""

        def check(offset: RelayOffset) -> None:
            end = self.limit.limit(offset)
            if end is not None and end < offset:
                raise self.error(tables)

        return check

    def error(self, tables: Collection[str]) -> errors.ShardmergeError:
        """The error of tables whose rest cannot be copied before the end."""
        first, *others = sorted(tables)
        more = f" and {len(others)} more" if others else ""
        return errors.snapshot.COPY_OF_ENDING(
            task=self.task, source=self.source, tables=f"{first}{more}", stop=self.shown
        )
