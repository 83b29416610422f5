"""`query-status --watch`: queries repeatedly and shows each answer in the requested form."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import RenderableType
from rich.live import Live

from shardmerge.ctl import as_json
from shardmerge.ctl.error_report import ErrorReport
from shardmerge.ctl.render import tables
from shardmerge.ctl.render.progress import RateMemory, TaskProgress, Until, is_reached, read, unreachable_goal
from shardmerge.ctl.session import Session
from shardmerge.ctl.verdict import judge, source_failures
from shardmerge.ctl.watch import live_view
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.errors import ShardmergeError

_CALL_SECONDS = 30.0  # for one query; the next one follows anyway
_GRACE_SECONDS = 60.0  # how long a watch tolerates masters that do not answer: they may be changing leaders

Ask = Callable[[float | None], pb.QueryStatusResponse]
Show = Callable[[pb.QueryStatusResponse | None, str, str], None]
"""Called with a new answer or None, why there is none, and the closing line when the watch ends."""


def run(
    session: Session,
    ask: Ask,
    *,
    detail: bool,
    more: bool,
    until: Until | None,
    interval: float,
    title: str,
    only_last: bool = False,
) -> int:
    """Watch until Ctrl-C (0), the goal (0), a false answer or a goal out of reach (1); the exit code.

    Without ``until`` it ends when every subtask is Finished. ``only_last``: without a terminal, print the last answer
    only. Raises the master's error if it persists for a minute, or
    at once if it is not retryable or no answer came yet.
    """
    with _display(session, detail=detail, more=more, title=title, only_last=only_last) as show:
        try:
            report = _loop(ask, show, until, interval, min(_CALL_SECONDS, session.settings.timeout))
        except KeyboardInterrupt:
            return 0
    return session.conclude(report)


def _loop(ask: Ask, show: Show, until: Until | None, interval: float, timeout: float) -> ErrorReport | None:
    first, answered = time.monotonic(), 0.0
    doubt: ErrorReport | None = None
    while True:
        began = time.monotonic()
        try:
            answer = ask(timeout)
        except ShardmergeError as error:
            if not error.spec.retryable or not answered or began - answered > _GRACE_SECONDS:
                raise
            show(None, str(error), "")
        else:
            answered = time.monotonic()
            failed = judge("query-status", answer)
            if failed is not None and _is_lasting(answer):
                show(answer, "", "Stopped watching.")
                return failed
            if is_reached(answer, until or Until.FINISHED, began - first):
                show(answer, "", "Finished." if (until or Until.FINISHED) is Until.FINISHED else "In sync.")
                return None
            # Two answers must agree: the first one after a resume-task may still show the previous error.
            unreachable = unreachable_goal(answer, until) if until is not None else None
            if unreachable is not None and doubt is not None:
                show(answer, "", "Stopped watching.")
                return unreachable
            doubt = unreachable
            show(answer, "", "")
        time.sleep(max(0.0, interval - (time.monotonic() - began)))


def _is_lasting(answer: pb.QueryStatusResponse) -> bool:
    """Whether a false answer remains false; a worker that is unreachable for a moment comes back."""
    failures = source_failures(answer)
    return not failures or any(failure.error is not None and not failure.error.retryable for failure in failures)


@contextmanager
def _display(session: Session, *, detail: bool, more: bool, title: str, only_last: bool) -> Generator[Show]:
    if session.is_json:

        def show_line(answer: pb.QueryStatusResponse | None, _stale_reason: str, closing: str) -> None:
            if closing or not only_last:
                _print_line(answer, detail=detail)

        yield show_line
        return
    console = session.console()
    if not console.is_terminal:
        console_view = _View(session, detail=detail, more=more, title=title, size=(console.width, 10_000))

        def show_plain(answer: pb.QueryStatusResponse | None, stale_reason: str, closing: str) -> None:
            frame = console_view.frame(answer, stale_reason, closing)
            if closing or not only_last:
                console.print(frame)
                console.file.flush()

        yield show_plain
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop", redirect_stderr=False) as screen:
        view = _View(session, detail=detail, more=more, title=title, size=None)

        def show_live(answer: pb.QueryStatusResponse | None, stale_reason: str, closing: str) -> None:
            view.size = (console.width, console.height)
            screen.update(view.frame(answer, stale_reason, closing), refresh=True)

        yield show_live


def _print_line(answer: pb.QueryStatusResponse | None, *, detail: bool) -> None:
    if answer is not None:
        print(as_json.to_text(as_json.query_status(answer, detail=detail), one_line=True), flush=True)


class _View:
    """Keeps what a frame needs from the previous ones."""

    def __init__(self, session: Session, *, detail: bool, more: bool, title: str, size: tuple[int, int] | None) -> None:
        self._session = session
        self._detail = detail
        self._more = more
        self._title = title
        self._memory = RateMemory()
        self._began = time.monotonic()
        self._progress = TaskProgress((), (), (), ())
        self._tasks: RenderableType = ""
        self.size = size or (80, 24)

    def frame(self, answer: pb.QueryStatusResponse | None, stale_reason: str, closing: str) -> RenderableType:
        now = time.monotonic()
        if answer is not None:
            if not self._detail:
                self._tasks = tables.task_list(answer)
            self._progress = read(answer, self._memory, now)
        width, height = self.size
        frame = live_view.Frame(
            title=self._title,
            address=self._session.client.address,
            elapsed=now - self._began,
            width=width,
            height=height,
            lanes=self._more,
            stale_reason=stale_reason,
            closing=closing,
        )
        return live_view.render(self._progress, frame) if self._detail else live_view.render_tasks(self._tasks, frame)
