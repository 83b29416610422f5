"""`top`: asks for the overview again and again, and shows each answer in the requested form."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext

from rich.console import Console, RenderableType
from rich.live import Live

from shardmerge.ctl import as_json
from shardmerge.ctl.as_json import Json
from shardmerge.ctl.render.diagnosis import top_table
from shardmerge.ctl.session import Session
from shardmerge.ctl.verdict import judge
from shardmerge.ctl.watch import live_view
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.errors import ShardmergeError

_CALL_SECONDS = 30.0
_GRACE_SECONDS = 60.0
"""How long the view continues while no master answers: they may be changing leaders."""

_FIRST_SECONDS = 1.0
"""Between the two answers of a single view: the main cause is measured over this time."""

_AROUND = 7
"""Lines around the rows of tasks."""

Ask = Callable[[float | None], pb.OverviewResponse]


def run(session: Session, ask: Ask, *, interval: float, once: bool) -> int:
    """Show the tasks until Ctrl-C, or once; the exit code. Raises the master's error if it persists for a minute, or at
    once if it is not retryable or no answer came yet."""
    times, timeout = top_table.LaneTimes(), min(_CALL_SECONDS, session.settings.timeout)
    if once:
        top_table.rows(ask(timeout), times)
        time.sleep(min(interval, _FIRST_SECONDS))
        answer = ask(timeout)
        found = top_table.rows(answer, times)
        if session.is_json:
            print(as_json.to_text(_value(answer, found)), flush=True)
        else:
            session.console().print(top_table.table(found))
        return session.conclude(judge("top", answer))
    try:
        _live(session, ask, times, interval, timeout)
    except KeyboardInterrupt:
        return 0
    return 0


def _live(session: Session, ask: Ask, times: top_table.LaneTimes, interval: float, timeout: float) -> None:
    console = session.console()
    began = answered = time.monotonic()
    has_answer, shown, stale = False, list[top_table.TaskRow](), ""
    screen = (
        nullcontext()
        if session.is_json
        else Live(console=console, auto_refresh=False, vertical_overflow="crop", redirect_stderr=False)
    )
    with screen as view:
        while True:
            at = time.monotonic()
            try:
                answer = ask(timeout)
            except ShardmergeError as error:
                if not error.spec.retryable or not has_answer or at - answered > _GRACE_SECONDS:
                    raise
                stale = str(error)
            else:
                has_answer, answered, stale = True, time.monotonic(), ""
                shown = top_table.rows(answer, times)
                if view is None:
                    print(as_json.to_text(_value(answer, shown), one_line=True), flush=True)
            if view is not None:
                view.update(_frame(session, console, shown, time.monotonic() - began, stale), refresh=True)
            time.sleep(max(0.0, interval - (time.monotonic() - at)))


def _frame(
    session: Session, console: Console, shown: list[top_table.TaskRow], elapsed: float, stale: str
) -> RenderableType:
    frame = live_view.Frame(
        title=f"{len(shown)} task(s)",
        address=session.client.address,
        elapsed=elapsed,
        width=console.width,
        height=console.height,
        stale_reason=stale,
    )
    return live_view.render_tasks(top_table.table(shown, console.height - _AROUND), frame)


def _value(answer: pb.OverviewResponse, found: list[top_table.TaskRow]) -> dict[str, Json]:
    """The answer, with the rows of the table in their order."""
    value = as_json.to_value(answer)
    tasks: list[Json] = [
        {
            "task": row.task,
            "stage": row.stage,
            "failed": row.failed,
            "sources": row.sources,
            "lagSeconds": row.lag,
            "rowsPerSecond": row.rate,
            "bytesBehind": str(row.bytes_behind),
            "synced": row.synced,
            "heldKeys": str(row.held_keys),
            "mainCause": row.cause,
            "worstSource": row.worst,
            "share": row.share,
            "etaSeconds": row.eta,
        }
        for row in found
    ]
    return {"result": value["result"], "msg": value["msg"], "tasks": tasks, "sources": value["sources"]}
