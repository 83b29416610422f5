"""Finds orphans: rows of the target whose partner is missing there, although the shard table's row has it.

Lanes commit in parallel, so a row may be at the target before its partner. The target's rows without a partner are
therefore only candidates. For each, the row and its partner are read at the source between two watermarks; then, when
every lane has committed up to the high one, the target is read again. If no event touches the row or its partner from
the low watermark to the source's end after the second read, both existed all the time. Other candidates are read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from shardmerge.proto import compare_pb2 as pb
from shardmerge.worker.core.row_change import Literals
from shardmerge.worker.snapshot.chunks import Chunk
from shardmerge.worker.verify.compare.compared_relations import ComparedRelation, RelationShard
from shardmerge.worker.verify.compare.compared_tables import TableQueries
from shardmerge.worker.verify.compare.keys import KeyReader, RowKey
from shardmerge.worker.verify.compare.messages import MAX_NAMED_BYTES, orphan, unjudged_key
from shardmerge.worker.verify.compare.sides import RelayPlaces, SourceSide, TargetSide

_ATTEMPTS = 12


@dataclass(frozen=True, slots=True)
class OrphanVerdict:
    """``still_changing``: candidates that changed meanwhile and must be read again."""

    orphans: tuple[RowKey, ...]
    still_changing: tuple[RowKey, ...]


@dataclass(frozen=True, slots=True)
class Touched:
    """Target's keys of the events meanwhile: of the shard table, and of the one to which it refers."""

    rows: Collection[Literals]
    partners: Collection[Literals]


def judge_orphans(
    candidates: Iterable[RowKey], partners: Mapping[Literals, Literals], lacking: Collection[Literals], touched: Touched
) -> OrphanVerdict:
    """Pure. ``partners``: of the rows that have a partner at the source, the partner's key; both as at the target.
    ``lacking``: the keys of the rows that had no partner at the target at the second read."""
    found: list[RowKey] = []
    left: list[RowKey] = []
    for key in candidates:
        partner = partners.get(key.target)
        if partner is None:
            continue  # another shard table's row, or its partner is missing at the source too
        if key.target in touched.rows or partner in touched.partners:
            left.append(key)
        elif key.target in lacking:
            found.append(key)
    return OrphanVerdict(tuple(found), tuple(left))


class OrphanSearch:
    """Of one relation; one thread at a time. Methods raise catalogue errors and NotComparable."""

    def __init__(
        self, relation: ComparedRelation, source: SourceSide, target: TargetSide, places: RelayPlaces, most_rows: int
    ) -> None:
        self._relation, self._most_rows = relation, most_rows
        self._source, self._target, self._places = source, target, places
        scan = relation.scan()
        self._scan = TableQueries(scan, scan.keys())
        self._shards = [_Shard(shard) for shard in relation.shards]

    def report(self, work: pb.CompareWork) -> pb.WorkReport:
        """The orphans of one chunk of the target."""
        chunk = Chunk(work.number, tuple(work.lower), tuple(work.upper))
        # Materialized: the next statement of this connection needs it to be free.
        rows = list(self._target.rows(self._scan.target_keys(chunk, self._condition())))
        left = {
            number: [key for key in map(shard.keys.at_target, rows) if key.source]
            for number, shard in enumerate(self._shards)
        }
        found: dict[int, list[RowKey]] = {}
        for _ in range(_ATTEMPTS):
            left = {number: keys for number, keys in left.items() if keys}
            if not left:
                break
            for number, verdict in self._judged(left).items():
                found.setdefault(number, []).extend(verdict.orphans)
                left[number] = list(verdict.still_changing)
        return self._filled(pb.WorkReport(work=work), found, left)

    def _condition(self) -> bytes:
        parts = [self._relation.scanned] if self._relation.scanned else []
        return " AND ".join((*parts, self._relation.orphaned)).encode()

    def _judged(self, candidates: Mapping[int, Sequence[RowKey]]) -> dict[int, OrphanVerdict]:
        low = self._source.low()
        partners = {number: self._partners(self._shards[number], keys) for number, keys in candidates.items()}
        high = self._source.high()
        start, end = self._places.locate(low), self._places.locate(high)
        if start.relay_id != end.relay_id:
            raise self._places.changed()
        wanted = {key: None for number, keys in candidates.items() for key in keys if key.target in partners[number]}
        lacking: set[Literals] = set()
        if wanted:
            self._places.await_lanes(end, high)
            lacking = self._lacking(list(wanted))
        # By now the source has written everything that a lane has committed.
        after = self._places.locate(self._source.high())
        verdicts: dict[int, OrphanVerdict] = {}
        for number, keys in candidates.items():
            shard = self._shards[number].shard
            touched = Touched((), ())
            if not lacking.isdisjoint(partners[number]):
                touched = Touched(
                    self._places.touched(shard.child.plan, start.offset, after),
                    self._places.touched(shard.parent, start.offset, after),
                )
            verdicts[number] = judge_orphans(keys, partners[number], lacking, touched)
        return verdicts

    def _partners(self, shard: _Shard, keys: Sequence[RowKey]) -> dict[Literals, Literals]:
        width = shard.keys.width
        found: dict[Literals, Literals] = {}
        statements = shard.reads.source_images(keys, f"{shard.keys.source_list}, {shard.shard.partner}")
        for row in self._source.rows(*statements):
            if row[width] is not None:
                found[shard.keys.at_source(row[:width]).target] = shard.parent_keys.at_source(row[width:]).target
        return found

    def _lacking(self, keys: Sequence[RowKey]) -> set[Literals]:
        statements = self._scan.target_keys_of(keys, self._relation.orphaned.encode())
        return {self._scan.keys.at_target(row).target for row in self._target.rows(*statements)}

    def _filled(
        self, report: pb.WorkReport, found: Mapping[int, Sequence[RowKey]], left: Mapping[int, Sequence[RowKey]]
    ) -> pb.WorkReport:
        """Count everything, and name the first rows as far as they fit into a message."""
        named_bytes = 0
        for number, shard in enumerate(self._relation.shards):
            orphans, unjudged = found.get(number, ()), left.get(number, ())
            if not orphans and not unjudged:
                continue
            report.orphans.add(table=self._relation.first + number, orphans=len(orphans), unjudged=len(unjudged))
            entries = [orphan(key, shard.child) for key in orphans[: self._most_rows]]
            entries += [unjudged_key(key, shard.child) for key in unjudged[: self._most_rows - len(entries)]]
            for entry in entries:
                entry.reference = shard.relation
                named_bytes += entry.ByteSize()
                if named_bytes <= MAX_NAMED_BYTES:
                    report.differences.append(entry)
        return report


class _Shard:
    def __init__(self, shard: RelationShard) -> None:
        self.shard = shard
        self.keys = shard.child.keys()
        self.reads = TableQueries(shard.child, self.keys)
        self.parent_keys = KeyReader(shard.parent, shard.parent_target)
