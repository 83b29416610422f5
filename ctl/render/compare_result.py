"""The result of a comparison's frames: its answer, its exit code, its report file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from shardmerge.ctl import as_json
from shardmerge.ctl.as_json import Json
from shardmerge.ctl.error_report import ErrorReport
from shardmerge.proto import compare_pb2 as pb
from shardmerge.proto import errors
from shardmerge.proto.common_pb2 import ErrorDetail
from shardmerge.proto.files.durable_file import private_text
from shardmerge.proto.listed_names import listed

_SHOWN = 5

SAME, DIFFERENT, UNKNOWN = 0, 1, 2
"""Exit codes: no differences; differences (that are left); not everything could be compared."""

_KINDS = {
    pb.RowDifference.KIND_MISSING: "missing",
    pb.RowDifference.KIND_EXTRA: "extra",
    pb.RowDifference.KIND_DIFFERENT: "different",
    pb.RowDifference.KIND_UNJUDGED: "unjudged",
    pb.RowDifference.KIND_ORPHAN: "orphan",
}


@dataclass(slots=True)
class ComparisonResult:
    """What is known of the comparison so far, collected frame by frame."""

    progress: dict[str, pb.CompareProgress] = field(default_factory=dict[str, pb.CompareProgress])
    tables: list[pb.ComparedTable] = field(default_factory=list[pb.ComparedTable])
    failures: list[tuple[str, ErrorDetail]] = field(default_factory=list[tuple[str, ErrorDetail]])
    seen: set[str] = field(default_factory=set[str])
    ended: set[str] = field(default_factory=set[str])

    def take(self, frame: pb.CompareFrame) -> None:
        self.seen.add(frame.source)
        match frame.WhichOneof("frame"):
            case "progress":
                self.progress[frame.source] = frame.progress
            case "end":
                self.ended.add(frame.source)
                self.tables.extend(frame.end.tables)
                if frame.end.HasField("error"):
                    self.failures.append((frame.source, frame.end.error))
            case _:
                pass

    def missing_results(self) -> str:
        """The sources whose result has not arrived; "" when all have. A master that stops cuts the frames off."""
        if not self.ended and not self.seen:
            return "every source"
        return ", ".join(sorted(self.seen - self.ended))

    def line(self) -> str:
        """The progress of all sources together, as one line of text."""
        done = sum(item.finished_chunks for item in self.progress.values())
        total = sum(item.total_chunks for item in self.progress.values())
        more = "" if all(item.plan_complete for item in self.progress.values()) else "+"
        rows = sum(item.rows for item in self.progress.values())
        found = sum(item.differences for item in self.progress.values())
        return f"{done} of {total}{more} chunks, {rows:,} rows, {found:,} differences"


def judge_multisets(tables: Sequence[pb.ComparedTable]) -> None:
    """Set the counts, ``remark`` and ``not_compared`` of the tables with sums, which have the results of all sources.

    The sums of every source are of one state of its shard tables and of the target. If the sources divide the target's
    rows, each source is judged alone. Otherwise, if all of them saw the same target, its rows are those of all shard
    tables together. Sources of MariaDB and MySQL may read values in other forms (JSON): if the same rows of the target
    have the same sums in each form, the forms give the same checksums. Only the numbers of rows show how many rows are
    missing or extra.
    """
    by_target: dict[str, list[pb.ComparedTable]] = {}
    for table in tables:
        if table.HasField("multiset"):
            by_target.setdefault(table.target_table, []).append(table)
    for group in by_target.values():
        _judge_group(group)


def _judge_group(group: Sequence[pb.ComparedTable]) -> None:
    sums = [table.multiset for table in group]
    compared, wanted = sum(item.compared for item in sums), max(item.shard_tables for item in sums)
    division, why = sums[0].division, ""
    if compared != wanted:
        why = f"it has no key: {compared} of the target's {wanted} shard tables were read, and all are needed"
    elif any(item.source.without_checksum or item.target.without_checksum for item in sums):
        why = "it has no key, and a row is too long for a checksum"
    elif any(item.division != division for item in sums):
        why = (
            "it has no key, and its sources divide its rows in different ways: a worker is of an earlier version, or "
            "its shard tables have changed"
        )
    elif not division and any(item.target != sums[0].target for item in sums):
        differ = len({item.form for item in sums}) > 1
        reason = (
            "its columns differ between the sources"
            if differ
            else "the target changed between the reads of two sources"
        )
        why = f"it has no key, and {reason}"
    for table in group:
        table.not_compared = why
    if why:
        return
    for part in [[table] for table in group] if division else [group]:
        _compare_sums(part[0], part)


def _compare_sums(first: pb.ComparedTable, group: Sequence[pb.ComparedTable]) -> None:
    target = first.multiset.target
    rows = sum(table.multiset.source.rows for table in group)
    equal = rows == target.rows and all(
        sum(int(getattr(table.multiset.source, name)) for table in group) == int(getattr(target, name))
        for name in ("first", "second")
    )
    first.missing = max(0, rows - target.rows)
    first.extra = max(0, target.rows - rows)
    first.different = int(not equal and rows == target.rows)
    first.unnamed = first.missing + first.extra + first.different
    text = f"no key, compared as a whole: {rows} rows in the shard tables, {target.rows} at the target"
    for table in group:
        table.remark = text if equal else f"{text}; rows differ, at least as many as are counted"


def unrepaired(table: pb.ComparedTable) -> int:
    """Differences that were not repaired."""
    return table.missing + table.extra + table.different + table.orphans - table.repaired


def exit_code(tables: Sequence[pb.ComparedTable], failures: Sequence[object]) -> int:
    """Differences have priority: they are real whatever else could not be compared."""
    if any(unrepaired(table) for table in tables):
        return DIFFERENT
    if failures or any(table.unjudged or table.not_compared for table in tables):
        return UNKNOWN
    return SAME


def unknown_names(names: Iterable[str], tables: Sequence[pb.ComparedTable]) -> list[str]:
    """Names of ``--table`` that are no table of the task."""
    known = {name for table in tables for name in (*table.source_table.split(", "), table.target_table)}
    return [name for name in names if name not in known]


def conclude(
    outcome: ComparisonResult, names: Sequence[str], task: str, *, references: bool = False
) -> tuple[int, ErrorReport | None]:
    """(exit code, report for stderr). ``references``: references were requested, not rows."""
    missing = outcome.missing_results()
    code = exit_code(outcome.tables, [*outcome.failures, *([missing] if missing else [])])
    if missing:
        return code, ErrorReport.of(errors.compare.INTERRUPTED(task=task, sources=missing))
    if outcome.failures:
        source, error = outcome.failures[0]
        return (code, ErrorReport.of_detail(error, source))
    if references:
        return _conclude_references(outcome, code, task)
    unknown = unknown_names(names, outcome.tables)
    if unknown:
        return max(code, UNKNOWN), ErrorReport.of(errors.compare.TABLE_UNKNOWN(task=task, tables=", ".join(unknown)))
    return code, None


def _conclude_references(outcome: ComparisonResult, code: int, task: str) -> tuple[int, ErrorReport | None]:
    old = next((table.source for table in outcome.tables if not table.reference), "")
    if old:
        return UNKNOWN, ErrorReport.of(errors.compare.NOT_REFERENCES(task=task, source=old))
    if not outcome.tables:
        return UNKNOWN, ErrorReport.of(errors.compare.NO_REFERENCES(task=task))
    return code, None


def answer(
    outcome: ComparisonResult, code: int, report: str, seconds: float, *, repair: bool = False, is_whole: bool = True
) -> pb.CompareAnswer:
    """``is_whole``: whether everything was compared that was requested."""
    left = sum(unrepaired(table) for table in outcome.tables)
    fixed = sum(table.repaired for table in outcome.tables)
    text = f"{left} differences" if left else "no differences" if code == SAME else ""
    if repair and left + fixed:
        text = f"{left + fixed} differences found, {fixed} repaired, {left} left"
    if code == UNKNOWN or not is_whole:
        text += f"{'; ' if text else ''}not everything could be judged{_without_result(outcome)}"
    _mark_stopped(outcome)
    left_out = dict.fromkeys(table.target_table for table in outcome.tables if table.left_out)
    if left_out:
        text += f"; left out: {listed(list(left_out), _SHOWN)}"
    tables = sorted(outcome.tables, key=lambda table: (table.source, table.source_table, table.reference))
    return pb.CompareAnswer(result=code == SAME, msg=text, tables=tables, report=report, seconds=seconds)


def _mark_stopped(outcome: ComparisonResult) -> None:
    """Set the remark of the tables whose source's comparison an error has ended: their counts look like results."""
    errors_of = dict(outcome.failures)
    for table in outcome.tables:
        error = errors_of.get(table.source)
        if error is not None and not table.left_out:
            table.remark = f"not finished: [{error.code} {error.name}]"
            table.extra_unsought = ""


def _without_result(outcome: ComparisonResult) -> str:
    """The target tables that were not judged, and the sources that an error has stopped, as the end of a sentence; ""
    if the reason is another one."""
    names = dict.fromkeys(table.target_table for table in outcome.tables if table.unjudged or table.not_compared)
    parts: list[str] = []
    if names:
        parts.append(f"{listed(list(names), _SHOWN)} (the table shows why; --leave-out leaves a table out)")
    if outcome.failures:
        parts.append(f"all tables of {listed([source for source, _ in outcome.failures], _SHOWN)}")
    return f": {'; '.join(parts)}" if parts else ""


class ReportFile:
    """A file with one JSON object per line: every listed row, then the count of rows left out. Kept only if not
    empty."""

    def __init__(self, path: Path) -> None:
        """Raises errors.ctl.FILE_UNREADABLE when it cannot be written."""
        self._path = path
        self._lines = 0
        try:
            self._file: IO[str] = private_text(path)
        except OSError as error:
            raise errors.ctl.FILE_UNREADABLE(path=path, reason=error.strerror or error) from error

    def add(self, source: str, row: pb.RowDifference) -> None:
        self._write(_row_line(source, row))

    def cut(self, table: pb.ComparedTable) -> None:
        """Record that ``table`` had more differences than were listed."""
        line: dict[str, Json] = {
            "source": table.source,
            "sourceTable": table.source_table,
            "targetTable": table.target_table,
            "notNamed": table.unnamed,
        }
        if table.reference:
            line["reference"] = table.reference
        self._write(line)

    def close(self) -> str:
        """The file's path, "" when there was nothing to write."""
        self._file.close()
        if not self._lines:
            self._path.unlink(missing_ok=True)
            return ""
        return str(self._path)

    def _write(self, line: dict[str, Json]) -> None:
        self._file.write(as_json.to_text(line, one_line=True) + "\n")
        self._lines += 1


def _row_line(source: str, row: pb.RowDifference) -> dict[str, Json]:
    line: dict[str, Json] = {
        "source": source,
        "sourceTable": row.source_table,
        "targetTable": row.target_table,
        "kind": _KINDS.get(row.kind, "unknown"),
        "key": {value.column: value.source for value in row.key},
    }
    if row.reference:
        line["reference"] = row.reference
    if row.columns:
        line["columns"] = {
            value.column: {
                "source": None if value.source_is_null else value.source,
                "target": None if value.target_is_null else value.target,
            }
            for value in row.columns
        }
    if row.repaired or row.not_repaired:
        line["repaired"] = row.repaired
    if row.not_repaired:
        line["notRepaired"] = row.not_repaired
    return line
