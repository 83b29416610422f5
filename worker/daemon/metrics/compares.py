"""What the last comparison of each table of a subtask has found. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardmerge.proto import compare_pb2 as pb
from shardmerge.worker.daemon.metrics.figures import CompareFigures

_Key = tuple[str, str, str]
_OF_ROWS = ("missing", "extra", "different", "repaired")
"""Kinds that only a comparison of rows counts, and fields of ComparedTable."""


@dataclass(frozen=True, slots=True)
class Compared:
    """``finished``: Unix seconds of the last comparison of all rows, 0.0: there was none. ``references_finished``: the
    same of all references. A later comparison of some tables replaces what is known about these."""

    finished: float = 0.0
    tables: Mapping[_Key, pb.ComparedTable] = field(default_factory=dict[_Key, pb.ComparedTable])
    references_finished: float = 0.0
    references: Mapping[_Key, pb.ComparedTable] = field(default_factory=dict[_Key, pb.ComparedTable])

    def after(self, request: pb.CompareRequest, found: Sequence[pb.ComparedTable], now: float) -> Compared:
        """What is known after a comparison that was complete. ``now``: Unix seconds."""
        compared = (each for each in found if not each.left_out)
        by_key = {(each.source_table, each.target_table, each.reference): each for each in compared}
        if request.tables:
            # What was not compared this time is as it was. Without a comparison of all tables a part shows nothing.
            by_key = {key: each for key, each in by_key.items() if not each.not_compared}
            if request.references:
                return replace(self, references={**self.references, **by_key}) if self.references_finished else self
            return replace(self, tables={**self.tables, **by_key}) if self.finished else self
        if request.references:
            return replace(self, references=by_key, references_finished=now)
        return replace(self, tables=by_key, finished=now)

    def figures(self) -> CompareFigures:
        """A kind that no comparison has counted is absent."""
        tables, references = self.tables.values(), self.references.values()
        differences: dict[str, int] = {}
        if self.finished:
            differences = {kind: sum(getattr(each, kind) for each in tables) for kind in _OF_ROWS}
        if self.references_finished:
            differences["orphan"] = sum(each.orphans for each in references)
        if self.finished or self.references_finished:
            differences["unjudged"] = sum(each.unjudged for each in (*tables, *references))
        rows = sum(each.rows for each in tables)
        return CompareFigures(finished=self.finished, rows=rows, differences=differences)
