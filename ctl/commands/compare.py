"""`dmctl compare`: are the target's rows those of the shard tables?"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from ctl import as_json, compare_table
from ctl.comparison import UNKNOWN, Outcome, ReportFile, answer, judged
from ctl.files import task_name
from ctl.options import shared
from ctl.report import Report
from ctl.session import Session, complain
from proto import compare_pb2 as pb
from proto.errors import ShardmergeError


@click.command("compare", short_help="compare the target with the shard tables, row by row")
@click.argument("task", metavar="TASK|FILE")
@click.option("-t", "--table", "tables", multiple=True, metavar="SCHEMA.TABLE", help="only this shard or target table")
@click.option("--repair", is_flag=True, help="copy the rows that differ again, beside the running task")
@click.option("--report", type=click.Path(path_type=Path), metavar="FILE", help="where rows that differ are named")
@click.option("--rows", type=click.IntRange(1, 1_000_000), default=1000, help="name so many per shard table  [1000]")
@click.option("--threads", type=click.IntRange(1, 32), default=2, help="Spark tasks per source  [2]")
@shared()
def compare(task: str, tables: tuple[str, ...], repair: bool, report: Path | None, rows: int, threads: int) -> int:
    """Compare every row of a task's target tables with the shard tables, while both go on changing.

    Checksums first; what differs is read again between watermarks, so that a difference reported is one. Exit code 0:
    the same (with --repair: it is now); 1: differences; 2: an error, or not everything could be judged. Ctrl-C ends it.

    \b
    Example:
        dmctl compare orders --table shop.orders --repair
    """
    try:
        name = task_name(task)
        session = Session.current()
        request = pb.CompareRequest(
            task=name,
            sources=session.settings.sources,
            tables=tables,
            repair=repair,
            threads=threads,
            most_rows=rows,
        )
        return _run(session, request, report or Path(_default_name(name)))
    except ShardmergeError as error:
        complain(Report.of(error))
        return UNKNOWN


def _default_name(task: str) -> str:
    now = datetime.now(UTC)
    return f"compare-{re.sub(r'[^A-Za-z0-9_.-]', '_', task)}-{now:%Y%m%d-%H%M%S}.jsonl"


def _run(session: Session, request: pb.CompareRequest, path: Path) -> int:
    began = time.monotonic()
    outcome = Outcome()
    file = ReportFile(path)
    kept = ""
    try:
        with _Progress() as progress:
            for frame in _frames(session, request):
                if frame.HasField("row"):
                    file.add(frame.source, frame.row)
                outcome.take(frame)
                progress.show(outcome)
        for table in outcome.tables:
            if table.unnamed:
                file.cut(table)
    finally:
        kept = file.close()
    code, said = judged(outcome, list(request.tables), request.task)
    told = answer(outcome, code, kept, time.monotonic() - began)
    if session.is_json:
        print(as_json.to_text(as_json.to_value(told)), flush=True)
    else:
        session.console().print(compare_table.compared(told))
        sys.stdout.flush()
    if said is not None:
        complain(said)
    return code


def _frames(session: Session, request: pb.CompareRequest) -> Iterator[pb.CompareFrame]:
    yield from session.client.compare(request)


class _Progress:
    """One line on stderr that is written over, on a terminal only."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._width = 0

    def show(self, outcome: Outcome) -> None:
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
