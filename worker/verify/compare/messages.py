"""Turns findings into the messages of a report. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from shardmerge.proto import compare_pb2 as pb
from shardmerge.worker.verify.compare.compared_tables import ComparedTable
from shardmerge.worker.verify.compare.judge import Different, Extra, Finding, Missing, Row
from shardmerge.worker.verify.compare.keys import RowKey
from shardmerge.worker.verify.compare.repair import RepairResult

_MOST_COLUMNS = 50
MAX_NAMED_BYTES = 12 << 20
"""Largest size of the rows that one report names. The worker accepts reports of up to 16 MiB."""


def fill_report(
    report: pb.WorkReport,
    findings: Sequence[Finding],
    left: Sequence[RowKey],
    table: ComparedTable,
    fixed: RepairResult | None,
    most: int,
) -> None:
    """Count all findings, and name the first ``most`` rows as far as they fit into a message. ``fixed``: the result of
    a repair, None without one."""
    kind = pb.RowDifference
    named_bytes = 0
    for finding in findings:
        entry = difference(finding, table)
        if fixed is not None:
            entry.repaired = finding.key.target in fixed.done
            if not entry.repaired:
                entry.not_repaired = fixed.refused.get(finding.key.target, "it changed in every attempt")
        report.missing += entry.kind == kind.KIND_MISSING
        report.extra += entry.kind == kind.KIND_EXTRA
        report.different += entry.kind == kind.KIND_DIFFERENT
        report.repaired += entry.repaired
        named_bytes += entry.ByteSize()
        if len(report.differences) < most and named_bytes <= MAX_NAMED_BYTES:
            report.differences.append(entry)
    report.unjudged += len(left)
    for key in left[: max(0, most - len(report.differences))]:
        entry = unjudged_key(key, table)
        named_bytes += entry.ByteSize()
        if named_bytes > MAX_NAMED_BYTES:
            break
        report.differences.append(entry)


def difference(finding: Finding, table: ComparedTable) -> pb.RowDifference:
    """The finding with the row's key, and with both sides' values of the columns that differ."""
    match finding:
        case Missing(key=key):
            return _named(key, table, pb.RowDifference.KIND_MISSING)
        case Extra(key=key):
            return _named(key, table, pb.RowDifference.KIND_EXTRA)
        case Different(key=key, columns=columns, source=source, target=target):
            entry = _named(key, table, pb.RowDifference.KIND_DIFFERENT)
            entry.columns.extend(_values(table, at, source, target) for at in columns[:_MOST_COLUMNS])
            return entry


def still_different(finding: Finding, table: ComparedTable) -> str:
    """Why a row that was repaired does not count as repaired."""
    match finding:
        case Missing():
            what = "the target lacks it"
        case Extra():
            what = "the target still has it"
        case Different(columns=columns):
            what = f"it differs in {', '.join(table.columns[at].name for at in columns[:_MOST_COLUMNS])}"
    return f"it was written, and when it was read again {what}: look for a trigger or another writer at the target"


def unjudged_key(key: RowKey, table: ComparedTable) -> pb.RowDifference:
    return _named(key, table, pb.RowDifference.KIND_UNJUDGED)


def orphan(key: RowKey, table: ComparedTable) -> pb.RowDifference:
    return _named(key, table, pb.RowDifference.KIND_ORPHAN)


def _named(key: RowKey, table: ComparedTable, kind: pb.RowDifference.Kind) -> pb.RowDifference:
    plan = table.plan
    entry = pb.RowDifference(
        kind=kind,
        source_table=plan.table.dotted,
        target_table=plan.target.dotted,
    )
    for index, value in zip(plan.key, key.target, strict=True):
        entry.key.add(column=plan.columns[index].target_name, source=_text(value.strip(b"'")))
    return entry


def _values(table: ComparedTable, at: int, source: Row, target: Row) -> pb.ComparedValue:
    ours, theirs = source.shown[at], target.shown[at]
    return pb.ComparedValue(
        column=table.columns[at].name,
        source=_text(ours),
        target=_text(theirs),
        source_is_null=source.values[at] is None,
        target_is_null=target.values[at] is None,
    )


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "backslashreplace")
