"""`dmctl compare`: compares the target's rows with those of the shard tables."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from shardmerge.ctl import as_json, render
from shardmerge.ctl.error_report import ErrorReport, print_report
from shardmerge.ctl.files import task_name
from shardmerge.ctl.options import shared
from shardmerge.ctl.render.compare_result import (
    SAME,
    UNKNOWN,
    ComparisonResult,
    ReportFile,
    answer,
    conclude,
    exit_code,
    judge_multisets,
    unrepaired,
)
from shardmerge.ctl.session import Session
from shardmerge.proto import compare_pb2 as pb
from shardmerge.proto.errors import ShardmergeError


@click.command("compare")
@click.argument("task", metavar="TASK|FILE")
@click.option("-t", "--table", "tables", multiple=True, metavar="SCHEMA.TABLE", help="only this shard or target table")
@click.option("--leave-out", "left_out", multiple=True, metavar="SCHEMA.TABLE", help="not this shard or target table")
@click.option("--repair", is_flag=True, help="copy the rows that differ again, while the task runs")
@click.option(
    "--references",
    is_flag=True,
    help="not the rows: which rows of the target have lost the row to which they refer",
)
@click.option("--report", type=click.Path(path_type=Path), metavar="FILE", help="file that lists the rows that differ")
@click.option(
    "--rows", type=click.IntRange(1, 1_000_000), default=1000, help="the most rows to list per shard table  [1000]"
)
@click.option("--threads", type=click.IntRange(1, 32), default=2, help="Spark tasks per source  [2]")
@shared()
def compare(
    task: str,
    tables: tuple[str, ...],
    left_out: tuple[str, ...],
    repair: bool,
    references: bool,
    report: Path | None,
    rows: int,
    threads: int,
) -> int:
    """Compare every row of a task's target tables with the shard tables, while both continue to change.

    Checksums are compared first; chunks that differ are read again between watermarks, so that every reported
    difference is real. Exit code 0: no differences (with --repair: none left); 1: differences; 2: an error, or not
    everything could be compared. Ctrl-C ends it.

    --references compares foreign keys and the references of the task file instead: it counts the target rows whose
    partner is missing at the target although it exists at the source.

    \b
    Example:
        dmctl compare orders --table shop.orders --repair
        dmctl compare orders --leave-out shop.visits
        dmctl compare orders --references
    """
    if repair and references:
        raise click.UsageError("--references cannot be repaired: correct the mapping, or use --repair without it")
    try:
        name = task_name(task)
        session = Session.current()
        request = pb.CompareRequest(
            task=name,
            sources=session.settings.sources,
            tables=tables,
            left_out=left_out,
            repair=repair,
            threads=threads,
            most_rows=rows,
            references=references,
            may_divide=True,
        )
        return _run(session, request, report or Path(_default_name(name)))
    except ShardmergeError as error:
        print_report(ErrorReport.of(error))
        return UNKNOWN


def _default_name(task: str) -> str:
    now = datetime.now(UTC)
    return f"compare-{re.sub(r'[^A-Za-z0-9_.-]', '_', task)}-{now:%Y%m%d-%H%M%S}.jsonl"


def _run(session: Session, request: pb.CompareRequest, path: Path) -> int:
    began = time.monotonic()
    outcome = ComparisonResult()
    file = ReportFile(path)
    kept = ""
    try:
        with _Progress() as progress:
            for frame in _frames(session, request):
                if frame.HasField("row"):
                    file.add(frame.source, frame.row)
                outcome.take(frame)
                progress.show(outcome)
        judge_multisets(outcome.tables)
        for table in outcome.tables:
            if table.unnamed:
                file.cut(table)
    finally:
        kept = file.close()
    code, report = conclude(outcome, [*request.tables, *request.left_out], request.task, references=request.references)
    is_whole = (
        exit_code([table for table in outcome.tables if not unrepaired(table)], [report] if report else []) == SAME
    )
    summary = answer(outcome, code, kept, time.monotonic() - began, repair=request.repair, is_whole=is_whole)
    if session.is_json:
        print(as_json.to_text(as_json.to_value(summary)), flush=True)
    else:
        session.console().print(render.compare_table.compared(summary))
        sys.stdout.flush()
    if report is not None:
        print_report(report)
    return code


def _frames(session: Session, request: pb.CompareRequest) -> Iterator[pb.CompareFrame]:
    yield from session.client.compare(request)


class _Progress:
    """One line on stderr that is overwritten, on a terminal only."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._width = 0

    def show(self, outcome: ComparisonResult) -> None:
        if self._is_shown and outcome.progress:
            line = outcome.line()
            sys.stderr.write("\r" + line.ljust(self._width))
            sys.stderr.flush()
            self._width = len(line)

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
