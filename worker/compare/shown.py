"""Findings as messages for people. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from proto import compare_pb2 as pb
from worker.compare.judge import Different, Extra, Finding, Missing, Row
from worker.compare.keys import Key
from worker.compare.repair import Repaired
from worker.compare.tables import ComparedTable

_MOST_COLUMNS = 50
_MOST_NAMED_BYTES = 12 << 20
"""Of the rows that one report names; the worker's limit for a report is 16 MiB."""


def fill_report(
    report: pb.WorkReport,
    findings: Sequence[Finding],
    left: Sequence[Key],
    table: ComparedTable,
    fixed: Repaired | None,
    most: int,
) -> None:
    """Count everything; name the first ``most`` rows, as far as they fit into a message. ``fixed``: of a repair."""
    kind = pb.RowDifference
    named_bytes = 0
    for finding in findings:
        told = difference(finding, table)
        if fixed is not None:
            told.repaired = finding.key.target in fixed.done
            if not told.repaired:
                told.not_repaired = fixed.refused.get(finding.key.target, "it changed in every attempt")
        report.missing += told.kind == kind.KIND_MISSING
        report.extra += told.kind == kind.KIND_EXTRA
        report.different += told.kind == kind.KIND_DIFFERENT
        report.repaired += told.repaired
        named_bytes += told.ByteSize()
        if len(report.differences) < most and named_bytes <= _MOST_NAMED_BYTES:
            report.differences.append(told)
    report.unjudged += len(left)
    for key in left[: max(0, most - len(report.differences))]:
        told = unjudged(key, table)
        named_bytes += told.ByteSize()
        if named_bytes > _MOST_NAMED_BYTES:
            break
        report.differences.append(told)


def difference(finding: Finding, table: ComparedTable) -> pb.RowDifference:
    """The finding with the row's key, and with both sides' values of the columns that differ."""
    match finding:
        case Missing(key=key):
            return _named(key, table, pb.RowDifference.KIND_MISSING)
        case Extra(key=key):
            return _named(key, table, pb.RowDifference.KIND_EXTRA)
        case Different(key=key, columns=columns, source=source, target=target):
            told = _named(key, table, pb.RowDifference.KIND_DIFFERENT)
            told.columns.extend(_values(table, at, source, target) for at in columns[:_MOST_COLUMNS])
            return told


def unjudged(key: Key, table: ComparedTable) -> pb.RowDifference:
    return _named(key, table, pb.RowDifference.KIND_UNJUDGED)


def _named(key: Key, table: ComparedTable, kind: pb.RowDifference.Kind) -> pb.RowDifference:
    plan = table.plan
    told = pb.RowDifference(
        kind=kind,
        source_table=f"{plan.table.schema}.{plan.table.name}",
        target_table=f"{plan.target_schema}.{plan.target_table}",
    )
    for index, value in zip(plan.key, key.target, strict=True):
        told.key.add(column=plan.columns[index].target_name, source=_text(value.strip(b"'")))
    return told


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
