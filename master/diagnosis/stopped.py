"""Why nothing of a source is applied: no worker, a pause, an error, a relay that does not fetch. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from shardmerge.master.diagnosis.finding import STOPPED, Finding
from shardmerge.master.diagnosis.view import SourceView
from shardmerge.proto import common_pb2, errors
from shardmerge.proto.common_pb2 import ErrorDetail
from shardmerge.proto.worker_pb2 import SubTaskStatus


def stopped(view: SourceView) -> Iterator[Finding]:
    """The findings of one source. If there is one with the weight STOPPED, lanes and relay have no figures that
    matter."""
    yield from _worker(view)
    status = view.status
    if status is not None:
        yield from _stage(view, status)
    elif view.answer is not None and not view.answer.status.HasField("source_error"):
        yield Finding("not-started", STOPPED - 5, "The worker has not started the subtask yet.")
    yield from _relay(view)
    if view.answer is not None and view.use.spark.lost:
        yield Finding(
            "spark-down",
            STOPPED,
            f"The Spark driver of worker {view.worker} cannot run jobs: the worker restarts in place.",
            ("Look at the worker's log, and at the free memory of its machine.",),
            names={"worker": view.worker},
        )


def _worker(view: SourceView) -> Iterator[Finding]:
    if view.is_disabled:
        yield Finding(
            "source-disabled",
            STOPPED,
            "The source is disabled in its file (`enable: false`): no worker reads it.",
            (
                "Set `enable: true` in the source's file.",
                "`dmctl operate-source update SOURCE-FILE`",
            ),
        )
        return
    if not view.is_bound:
        held = f"It was bound to worker {view.worker}, which is offline. " if view.worker else ""
        yield Finding(
            "source-unbound",
            STOPPED,
            f"No live worker has the source. {held}Its tasks wait for one.",
            ("`dmctl list-member --worker` shows the workers.", "Start the worker again, or one more dm-worker."),
            names={"worker": view.worker} if view.worker else {},
        )
        return
    if view.failure is not None and view.failure.code == errors.master.PEER_UNIMPLEMENTED.code:
        yield Finding(
            "worker-earlier",
            STOPPED,
            f"Worker {view.worker} is of an earlier version, which does not measure where the time goes.",
            (
                "Upgrade the worker.",
                f"`dmctl query-status {view.task_word} -s {view.source_word}` shows the state of its subtask.",
            ),
            names={"worker": view.worker, "error": view.failure.name},
            figures={"code": view.failure.code},
        )
        return
    if view.failure is not None:
        yield Finding(
            "worker-silent",
            STOPPED,
            f"Worker {view.worker} could not be asked: {coded(view.failure)}.",
            (
                *workaround(view, view.failure),
                "`dmctl list-member --worker` shows whether it is alive.",
            ),
            names={"worker": view.worker, "error": view.failure.name},
            figures={"code": view.failure.code},
        )
        return
    answer = view.answer
    if answer is not None and answer.status.HasField("source_error"):
        error = answer.status.source_error
        yield Finding(
            "source-error",
            STOPPED,
            f"The worker cannot use the source: {coded(error)}.",
            workaround(view, error),
            names={"error": error.name},
            figures={"code": error.code},
        )


def _stage(view: SourceView, status: SubTaskStatus) -> Iterator[Finding]:
    resume = f"`dmctl resume-task {view.task_word} -s {view.source_word}`"
    error = next(iter(status.result.errors), None)
    match status.stage:
        case common_pb2.STAGE_NEW if not view.is_paused:
            why = f" ({status.waiting_for})" if status.waiting_for else ""
            yield Finding("not-started", STOPPED - 5, f"The worker has not started the subtask yet{why}.")
        case common_pb2.STAGE_PAUSED if error is not None and status.waiting_for and not view.is_paused:
            yield Finding(
                "resume-waits",
                STOPPED - 5,
                f"The last run failed: {coded(error)}. The worker tries again by itself: {status.waiting_for}.",
                (*workaround(view, error), f"At once: {resume}"),
                names={"error": error.name},
                figures={"code": error.code},
            )
        case common_pb2.STAGE_PAUSED if error is not None and view.is_paused:
            yield Finding(
                "paused",
                STOPPED,
                f"An operator has paused it (`dmctl pause-task`). Its last error was {coded(error)}.",
                _with_resume(workaround(view, error), resume),
                names={"error": error.name},
                figures={"code": error.code},
            )
        case common_pb2.STAGE_PAUSED if error is not None:
            yield Finding(
                "stopped-by-error",
                STOPPED,
                f"An error has stopped it: {coded(error)}.",
                _then_resume(view, error),
                names={"error": error.name},
                figures={"code": error.code},
            )
        case common_pb2.STAGE_NEW | common_pb2.STAGE_PAUSED if view.is_paused:
            yield Finding("paused", STOPPED, "An operator has paused it (`dmctl pause-task`).", (resume,))
        case common_pb2.STAGE_PAUSED:
            yield Finding(
                "not-started",
                STOPPED - 5,
                "Its run was interrupted, and the worker has not begun the next one yet: it begins it by itself as "
                "soon as it may (with its lease in etcd, and without another command in progress).",
                (f"`dmctl query-status {view.task_word} -s {view.source_word}`, and the worker's log.",),
            )
        case common_pb2.STAGE_STOPPED:
            yield Finding("stopping", STOPPED - 5, "It ends: the task is being stopped at this source.")
        case _:
            pass


def _relay(view: SourceView) -> Iterator[Finding]:
    relay = view.relay
    if relay is None:
        return
    if relay.paused or view.relay_paused:
        yield Finding(
            "relay-paused",
            STOPPED - 8,
            "An operator has paused the relay (`dmctl pause-relay`): nothing new of the source is fetched.",
            (f"`dmctl resume-relay -s {view.source_word}`",),
        )
    elif relay.HasField("result") and relay.result.code not in _own_codes(view):
        error = relay.result
        runs = relay.stage == common_pb2.STAGE_RUNNING
        retry = " It is tried again by itself." if runs else ""
        yield Finding(
            "relay-error",
            STOPPED - 7,
            f"The source's binlog is not fetched: {coded(error)}.{retry}",
            workaround(view, error) if runs else _then_resume(view, error),
            names={"error": error.name},
            figures={"code": error.code},
        )


def _own_codes(view: SourceView) -> set[int]:
    """The codes of the subtask's own errors: the relay's may be shown as one of them."""
    return set() if view.status is None else {error.code for error in view.status.result.errors}


def _then_resume(view: SourceView, error: ErrorDetail) -> tuple[str, ...]:
    """What the error's text names, and resume-task unless the text has it, or the worker continues by itself."""
    named = workaround(view, error)
    return (
        named
        if error.retryable
        else _with_resume(named, f"Then `dmctl resume-task {view.task_word} -s {view.source_word}`")
    )


def _with_resume(named: tuple[str, ...], resume: str) -> tuple[str, ...]:
    return named if any("resume-task" in text for text in named) else (*named, resume)


def coded(error: ErrorDetail) -> str:
    """The error as a part of a sentence, without a point at its end."""
    return f"[{error.code} {error.name}] {error.message}".rstrip(". ")


def workaround(view: SourceView, error: ErrorDetail) -> tuple[str, ...]:
    """The text of the error; an error of a source leaves the names of the task and of the source open."""
    text = error.workaround.replace("<task>", view.task_word).replace("<source>", view.source_word)
    return (text,) if text else ()
