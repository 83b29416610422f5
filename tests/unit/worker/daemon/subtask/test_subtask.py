"""A subtask's life: decisions in any order, outages of any length."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from shardmerge.proto import common_pb2 as pb
from shardmerge.proto import config_pb2, errors, secret, worker_pb2
from shardmerge.proto.process.periodic import Backoff
from shardmerge.proto.task_history.event import Event, HistoryEntryKind
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.stored_override import OverrideKind, StoredOverride
from shardmerge.worker.core.task_runner import TaskRunner
from shardmerge.worker.daemon.metrics.figures import NO_COMPARISON
from shardmerge.worker.daemon.subtask import subtask as module
from shardmerge.worker.daemon.subtask.run_resources import RunObserver
from shardmerge.worker.daemon.subtask.source_context import SourceContext
from shardmerge.worker.daemon.subtask.subtask import (
    Decision,
    Ended,
    New,
    Paused,
    RemovedSubtask,
    Running,
    Starting,
    SubTask,
    may_become,
)
from shardmerge.worker.ddl.locks.lock_client import LockClient
from shardmerge.worker.replicate.lane_totals import NO_TOTALS
from shardmerge.worker.unit.contract import Failed, Finished, Outcome, Stopped
from tests.support.wait import until

HOST: SourceContext = SourceContext(
    config_pb2.SourceConfig(source_id="mysql-01"),
    *[None] * 8,  # type: ignore[arg-type]  # a run that is replaced below asks for nothing
)
Script = Callable[[str, StopSignal], Outcome]


class ScriptedRun:
    """Stands for a run at servers: what it does is the test's."""

    script: Script
    runs: list[tuple[str, str, str]]
    owner: RunObserver

    def __init__(
        self, config: config_pb2.SubTaskConfig, token: str, update: str, host: SourceContext, owner: RunObserver
    ) -> None:
        self._meta_schema = config.meta_schema
        ScriptedRun.owner = owner
        ScriptedRun.runs.append((config.meta_schema, token, update))

    def run(self, stop: StopSignal) -> Outcome:
        return ScriptedRun.script(self._meta_schema, stop)


def until_stopped(_: str, stop: StopSignal) -> Outcome:
    while not stop.wait(0.01):
        pass
    return Stopped()


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[[Script], SubTask]:
    monkeypatch.setattr(module, "SubTaskRun", ScriptedRun)

    def make(script: Script) -> SubTask:
        ScriptedRun.script, ScriptedRun.runs = staticmethod(script), []
        return SubTask(
            decision(1), replace(HOST, task_runner=cast("TaskRunner", SimpleNamespace(is_local=True))), lambda: True
        )

    return make


def decision(
    revision: int, expected: pb.Stage = pb.STAGE_RUNNING, schema: str = "dm_meta", token: str = "", update: str = ""
) -> Decision:
    return Decision(config_pb2.SubTaskConfig(task="t", meta_schema=schema), expected, token, update, revision)


@pytest.fixture
def key(tmp_path: Path) -> Iterator[secret.SecretKey]:
    path = str(tmp_path / "key")
    secret.new_key(path)
    secret.use(path)
    yield secret.load_key(path)
    secret.use("")


def by_password(decided: Decision, password: str) -> Decision:
    config = config_pb2.SubTaskConfig()
    config.CopyFrom(decided.config)
    config.target.password = password
    return replace(decided, config=config)


def stage(subtask: SubTask) -> pb.Stage:
    return subtask.status().stage


def test_a_run_that_begins_shows_why_the_one_before_ended(start: Callable[[Script], SubTask]) -> None:
    """Its start may take as long as the server is in trouble, and has no unit and no error of its own yet."""
    full = errors.replicate.TARGET_STORAGE(host="h", port=1, reason="The table 'lane' is full", errno=1114)
    outcomes: list[Outcome] = [Failed(full)]
    subtask = start(lambda schema, stop: outcomes.pop() if outcomes else until_stopped(schema, stop))
    until(lambda: stage(subtask) == pb.STAGE_PAUSED, "the first run has failed")
    assert subtask.status().result.errors[0].code == full.code
    until(lambda: stage(subtask) == pb.STAGE_RUNNING, "the second one begins")
    status = subtask.status()
    assert not status.result.errors and status.unit == pb.UNIT_UNSPECIFIED
    assert status.waiting_for == f"the start of its next run; the last one ended with {full}"
    assert "The table 'lane' is full (errno 1114)" in status.waiting_for
    subtask.end()
    assert subtask.join(300)


def test_pause_and_resume(start: Callable[[Script], SubTask]) -> None:
    subtask = start(until_stopped)
    until(lambda: stage(subtask) == pb.STAGE_RUNNING, "it runs")
    subtask.decide(decision(2, pb.STAGE_PAUSED))
    until(lambda: subtask.converged and stage(subtask) == pb.STAGE_PAUSED, "it is paused")
    subtask.decide(decision(3))
    until(lambda: subtask.converged and stage(subtask) == pb.STAGE_RUNNING, "it runs again")
    subtask.end()
    assert subtask.join(300)
    assert stage(subtask) == pb.STAGE_STOPPED


def test_decisions_of_an_etcd_that_has_lost_data_are_carried_out(start: Callable[[Script], SubTask]) -> None:
    """Its revisions are lower, or are those of other decisions."""
    subtask = start(until_stopped)
    subtask.decide(decision(90))
    until(lambda: subtask.converged and stage(subtask) == pb.STAGE_RUNNING, "it runs")
    subtask.decide(decision(50, pb.STAGE_PAUSED))
    until(lambda: subtask.converged and stage(subtask) == pb.STAGE_PAUSED, "it is paused")
    subtask.decide(decision(60))
    until(lambda: subtask.converged and stage(subtask) == pb.STAGE_RUNNING, "it runs again")
    subtask.decide(decision(60, schema="other"))
    until(lambda: len(ScriptedRun.runs) == 3, "it runs with the other configuration")
    until(lambda: subtask.converged and stage(subtask) == pb.STAGE_RUNNING, "the run is the newest decision's")
    subtask.decide(decision(60, schema="other"))
    assert subtask.converged
    subtask.end()
    assert subtask.join(300)
    assert ScriptedRun.runs == [("dm_meta", "", "")] * 2 + [("other", "", "")]


def test_progress_is_due_from_the_resume_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a night of pause DM_snapshot_stalled must not fire before the first chunk."""
    monkeypatch.setattr(module, "SubTaskRun", ScriptedRun)
    ScriptedRun.script, ScriptedRun.runs = staticmethod(until_stopped), []
    shards = SimpleNamespace(locks=lambda task, version, seconds: (0, ()))  # pyright: ignore[reportUnknownLambdaType]
    subtask = SubTask(decision(1), replace(HOST, shards=cast("LockClient", shards)), lambda: True)
    until(lambda: stage(subtask) == pb.STAGE_RUNNING, "it runs")
    subtask.decide(decision(2, pb.STAGE_PAUSED))
    until(lambda: subtask.converged and stage(subtask) == pb.STAGE_PAUSED, "it is paused")
    until(lambda: subtask.figures(NO_TOTALS, NO_COMPARISON).known_seconds > 1, "time passes", every=0.2)
    resumed = time.monotonic()
    subtask.decide(decision(3))
    until(lambda: subtask.converged and stage(subtask) == pb.STAGE_RUNNING, "it runs again")
    assert subtask.figures(NO_TOTALS, NO_COMPARISON).known_seconds <= time.monotonic() - resumed
    subtask.end()
    assert subtask.join(300)


class Synced:
    """A unit that has applied everything."""

    def run(self, stop: StopSignal) -> Outcome:
        return until_stopped("", stop)

    def status(self) -> worker_pb2.SyncStatus:
        return worker_pb2.SyncStatus(synced=True)

    def activity(self) -> str:
        return ""


def test_the_result_of_a_run_is_not_reported_for_the_next_one(start: Callable[[Script], SubTask]) -> None:
    may_begin = threading.Event()

    def run(_: str, stop: StopSignal) -> Outcome:
        if len(ScriptedRun.runs) == 2:
            may_begin.wait()
        unit = Synced()
        ScriptedRun.owner.unit_begins(unit)
        return unit.run(stop)

    subtask = start(run)
    until(lambda: subtask.status().sync.synced, "it replicates")
    subtask.decide(decision(2, update="u"))
    until(lambda: subtask.converged and stage(subtask) == pb.STAGE_RUNNING, "the next run has begun")
    assert not subtask.status().HasField("sync")
    may_begin.set()
    until(lambda: subtask.status().sync.synced, "it replicates again")
    subtask.decide(decision(3, pb.STAGE_PAUSED, update="u"))
    until(lambda: stage(subtask) == pb.STAGE_PAUSED, "it is paused")
    paused = subtask.status().sync
    assert (paused.synced, paused.unknown) == (False, "it is paused")
    subtask.end()


def test_a_resume_of_a_running_one_is_settled_at_once(start: Callable[[Script], SubTask]) -> None:
    subtask = start(until_stopped)
    until(lambda: stage(subtask) == pb.STAGE_RUNNING, "it runs")
    subtask.decide(decision(2))
    assert subtask.converged
    assert len(ScriptedRun.runs) == 1
    subtask.end()


@pytest.mark.parametrize(
    "newer", [decision(5, schema="other"), decision(5, token="fresh"), decision(5, update="fresh")]
)
def test_stop_and_start_seen_as_one_change_runs_the_new_record(
    start: Callable[[Script], SubTask], newer: Decision
) -> None:
    """stop-task and start-task may both have happened before the worker looks."""
    subtask = start(until_stopped)
    until(lambda: stage(subtask) == pb.STAGE_RUNNING, "it runs")
    subtask.decide(newer)
    until(lambda: len(ScriptedRun.runs) == 2, "a run of the new record begins")
    assert ScriptedRun.runs[1] == (newer.config.meta_schema, newer.meta_token, newer.update_token)
    until(lambda: subtask.converged, "it is settled")
    subtask.end()


def test_an_outage_of_any_length_is_outlived(
    start: Callable[[Script], SubTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 ** 1024 does not fit a float: the thousandth resume must not end the thread."""
    monkeypatch.setattr(module, "_BACKOFF", Backoff(0.0))
    failure = Failed(errors.replicate.TARGET_LOST(host="h", port=1, reason="gone", errno=2003))

    def fails_long(_: str, stop: StopSignal) -> Outcome:
        return failure if len(ScriptedRun.runs) < 1100 else Finished()

    monkeypatch.setattr(module, "_LEAST_PAUSE_SECONDS", 0.0)
    subtask = start(fails_long)
    until(lambda: stage(subtask) == pb.STAGE_FINISHED, "it finishes after 1100 runs")


def test_lost_lanes_run_again_at_once_and_then_after_a_pause(
    start: Callable[[Script], SubTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BACKOFF", Backoff(1000.0))
    lost = Failed(errors.worker.SPARK_TASK_LOST(job="j", reason="killed"))
    subtask = start(lambda _, stop: lost)
    until(lambda: len(ScriptedRun.runs) == 2 and stage(subtask) == pb.STAGE_PAUSED, "it has run again", 60)
    assert subtask.status().waiting_for.startswith("automatic resume in ")
    subtask.end()
    assert subtask.join(300)
    assert len(ScriptedRun.runs) == 2


def test_a_word_that_may_have_come_too_late_for_a_run_has_another_one(start: Callable[[Script], SubTask]) -> None:
    """The run had asked for the operator's words before; the next one fails with it, and that stands."""
    failure = Failed(errors.ddl.STATEMENT_UNKNOWN(source="s", task="t", position="p", statement="y"))
    said = threading.Event()

    def fails(_: str, stop: StopSignal) -> Outcome:
        said.wait(300)
        return failure

    subtask = start(fails)
    until(lambda: stage(subtask) == pb.STAGE_RUNNING, "it runs")
    subtask.decide(replace(decision(2), binlog_ops=(StoredOverride(kind=OverrideKind.SKIP, file="f", pos=4),)))
    said.set()
    until(lambda: len(ScriptedRun.runs) == 2 and stage(subtask) == pb.STAGE_PAUSED, "it has run again")
    assert subtask.status().waiting_for == ""
    subtask.end()
    assert subtask.join(300)
    assert len(ScriptedRun.runs) == 2


def test_a_failure_that_needs_an_operator_waits_for_a_decision(start: Callable[[Script], SubTask]) -> None:
    failure = Failed(errors.ddl.STATEMENT_UNKNOWN(source="s", task="t", position="p", statement="y"))
    subtask = start(lambda _, stop: failure)
    until(lambda: stage(subtask) == pb.STAGE_PAUSED, "it is paused")
    assert [error.code for error in subtask.status().result.errors] == [errors.ddl.STATEMENT_UNKNOWN.code]
    assert len(ScriptedRun.runs) == 1
    subtask.decide(decision(2))
    until(lambda: len(ScriptedRun.runs) == 2, "a decision runs it again")
    subtask.end()


def test_a_bug_in_a_run_pauses_it(start: Callable[[Script], SubTask]) -> None:
    def broken(_: str, stop: StopSignal) -> Outcome:
        raise ZeroDivisionError

    subtask = start(broken)
    until(lambda: stage(subtask) == pb.STAGE_PAUSED, "it is paused")
    assert [error.code for error in subtask.status().result.errors] == [errors.worker.INTERNAL.code]
    subtask.end()


def test_no_run_begins_while_it_is_held_at_rest(start: Callable[[Script], SubTask]) -> None:
    subtask = start(until_stopped)
    until(lambda: stage(subtask) == pb.STAGE_RUNNING, "it runs")
    with pytest.raises(errors.ShardmergeError) as refused, subtask.while_paused():
        pass
    assert refused.value.spec is errors.ddl.SCHEMA_RUNNING
    subtask.decide(decision(2, pb.STAGE_PAUSED, token="fresh"))
    until(lambda: stage(subtask) == pb.STAGE_PAUSED, "it is paused")
    with subtask.while_paused() as token:
        assert token == "fresh"
        subtask.decide(decision(3, token="fresh"))
        with pytest.raises(AssertionError):
            until(lambda: len(ScriptedRun.runs) == 2, "it runs though it is held", 0.3)
        assert not subtask.converged
    until(lambda: len(ScriptedRun.runs) == 2, "it runs when it is let go")
    subtask.end()


@pytest.mark.parametrize("retryable", [True, False])
def test_a_failure_is_rest_unless_it_is_tried_again(start: Callable[[Script], SubTask], *, retryable: bool) -> None:
    spec = errors.replicate.TARGET_LOST if retryable else errors.replicate.FENCED
    subtask = start(lambda _, stop: Failed(spec()))
    until(lambda: stage(subtask) == pb.STAGE_PAUSED, "it is paused")
    if retryable:
        with pytest.raises(errors.ShardmergeError), subtask.while_paused():
            pass
    else:
        with subtask.while_paused():
            pass
    subtask.end()


def test_nothing_follows_a_removal() -> None:
    states = (New(), Starting(None), Running(), Paused(), Ended(), RemovedSubtask())
    assert not any(may_become(RemovedSubtask(), then) for then in states)
    assert not may_become(New(), Ended())
    assert not may_become(Paused(), Running()), "a run starts before it has a unit"


def test_secrets_in_another_form_begin_nothing_anew(start: Callable[[Script], SubTask], key: secret.SecretKey) -> None:
    subtask = start(until_stopped)
    subtask.decide(by_password(decision(2), "p"))
    until(lambda: len(ScriptedRun.runs) == 2 and subtask.converged, "another password is another run")
    subtask.decide(by_password(decision(3), key.encrypt("p")))
    assert subtask.converged and len(ScriptedRun.runs) == 2
    assert stage(subtask) == pb.STAGE_RUNNING and subtask.config.target.password == key.encrypt("p")
    subtask.decide(by_password(decision(4), key.encrypt("q")))
    until(lambda: len(ScriptedRun.runs) == 3, "another one, encrypted, is another run")
    subtask.end()
    assert subtask.join(300)


def test_secrets_in_another_form_ask_for_no_further_try(
    start: Callable[[Script], SubTask], key: secret.SecretKey
) -> None:
    failed = Failed(errors.ddl.STATEMENT_UNKNOWN(source="s", task="t", position="p", statement="y"))
    subtask = start(lambda _schema, _stop: failed)
    subtask.decide(by_password(decision(2), "p"))
    until(lambda: len(ScriptedRun.runs) == 2 and stage(subtask) == pb.STAGE_PAUSED, "it has failed")
    subtask.decide(by_password(decision(3), key.encrypt("p")))
    assert subtask.converged
    with subtask.while_paused():
        pass
    assert len(ScriptedRun.runs) == 2
    subtask.decide(by_password(decision(4), key.encrypt("p")))
    until(lambda: len(ScriptedRun.runs) == 3, "resume-task writes the same again: that is another try")
    subtask.end()
    assert subtask.join(300)


class Events:
    """Takes the events of a subtask; a decision is an event without a text."""

    def __init__(self) -> None:
        self.taken: list[Event] = []

    def add(self, event: Event) -> None:
        self.taken.append(event)

    def separate(self, task: str, source: str) -> None:
        self.taken.append(Event(task, HistoryEntryKind.STAGE, 0.0, "", (source,)))

    def texts(self) -> list[str]:
        return [event.text for event in self.taken]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    taken = Events()
    monkeypatch.setitem(globals(), "HOST", replace(HOST, history=taken))
    return taken


def test_the_history_has_each_stage_with_its_cause(start: Callable[[Script], SubTask], events: Events) -> None:
    subtask = start(until_stopped)
    until(lambda: stage(subtask) == pb.STAGE_RUNNING, "it runs")
    subtask.decide(decision(2, pb.STAGE_PAUSED))
    until(lambda: stage(subtask) == pb.STAGE_PAUSED, "it is paused")
    subtask.decide(decision(3))
    until(lambda: stage(subtask) == pb.STAGE_RUNNING, "it runs again")
    subtask.interrupt()
    until(lambda: len(ScriptedRun.runs) == 3, "it continues")
    subtask.decide(decision(4, update="u"))
    until(lambda: len(ScriptedRun.runs) == 4, "it starts again")
    subtask.end("its worker ends")
    assert subtask.join(300)
    assert events.texts() == [
        "",
        "New → Running: as decided",
        "Running → Paused: as decided",
        "",
        "Paused → Running: as decided",
        "Running → Paused: the worker has lost its lease",
        "Paused → Running: the worker holds its lease again",
        "Running → Paused: to start again as decided",
        "",
        "Paused → Running: as decided",
        "",
        "Running → Stopped: its worker ends",
    ]
    assert [event.stage for event in events.taken if event.text][-1] == "Stopped"


def test_the_history_has_an_error_as_the_status_shows_it(
    start: Callable[[Script], SubTask], events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two equal failures repeats the first: no decision is between them."""
    monkeypatch.setattr(module, "_BACKOFF", Backoff(0.0))
    monkeypatch.setattr(module, "_LEAST_PAUSE_SECONDS", 0.0)
    lost = errors.replicate.TARGET_LOST(host="h", port=1, reason="gone", errno=2003)

    def fails_twice(_: str, stop: StopSignal) -> Outcome:
        return Failed(lost) if len(ScriptedRun.runs) < 3 else until_stopped("", stop)

    subtask = start(fails_twice)
    until(lambda: len(ScriptedRun.runs) == 3, "it has failed twice")
    failures = [event for event in events.taken if event.kind is HistoryEntryKind.ERROR]
    assert [(one.code, one.name, one.message, one.stage) for one in failures] == [
        (lost.code, lost.spec.name, lost.message, "Paused")
    ] * 2
    assert failures[0].same == failures[1].same != ""
    assert events.texts()[1:] == [
        "New → Running: as decided",
        "Running → Paused, automatic resume follows",
        "Paused → Running: automatic resume",
        "Running → Paused, automatic resume follows",
        "Paused → Running: automatic resume",
    ]
    subtask.end()


def _with_locks(monkeypatch: pytest.MonkeyPatch, script: Script) -> SubTask:
    monkeypatch.setattr(module, "SubTaskRun", ScriptedRun)
    ScriptedRun.script, ScriptedRun.runs = staticmethod(script), []
    shards = SimpleNamespace(locks=lambda task, version, seconds: (0, ()))  # pyright: ignore[reportUnknownLambdaType]
    task_runner = cast("TaskRunner", SimpleNamespace(is_local=True))
    return SubTask(decision(1), replace(HOST, shards=cast("LockClient", shards), task_runner=task_runner), lambda: True)


def test_a_failed_task_that_an_operator_pauses_does_not_resume_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BACKOFF", Backoff(1000.0))
    lost = Failed(errors.replicate.TARGET_LOST(address="t", reason="r"))
    subtask = _with_locks(monkeypatch, lambda _, stop: lost)
    until(lambda: subtask.status().waiting_for.startswith("automatic resume"), "it waits for its resume")
    figures = subtask.figures(NO_TOTALS, NO_COMPARISON)
    assert (figures.resume_seconds is not None, figures.paused_by_operator) == (True, False)
    subtask.decide(decision(2, pb.STAGE_PAUSED))
    figures = subtask.figures(NO_TOTALS, NO_COMPARISON)
    assert subtask.status().waiting_for == ""
    assert subtask.status().result.errors, "the error stays visible"
    assert (figures.resume_seconds, figures.paused_by_operator) == (None, True)
    subtask.end()
    assert subtask.join(300)


def test_failures_in_a_row_end_when_a_run_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the alert would stay until the next run ends, perhaps in a year."""
    monkeypatch.setattr(module, "_BACKOFF", Backoff(0.0))
    monkeypatch.setattr(module, "_BACKOFF_RESET_SECONDS", 1000.0)
    lost = Failed(errors.replicate.TARGET_LOST(address="t", reason="r"))
    subtask = _with_locks(
        monkeypatch, lambda schema, stop: lost if len(ScriptedRun.runs) < 10 else until_stopped(schema, stop)
    )
    until(lambda: len(ScriptedRun.runs) == 10 and stage(subtask) == pb.STAGE_RUNNING, "the tenth run lasts")
    assert subtask.figures(NO_TOTALS, NO_COMPARISON).failures_in_row == 9, "counted beyond the longest pause"
    monkeypatch.setattr(module, "_BACKOFF_RESET_SECONDS", 0.0)
    assert subtask.figures(NO_TOTALS, NO_COMPARISON).failures_in_row == 0
    subtask.end()
    assert subtask.join(300)


def test_without_a_valid_lease_no_answer_claims_that_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process was suspended: its run has not been stopped yet."""
    monkeypatch.setattr(module, "SubTaskRun", ScriptedRun)
    ScriptedRun.script, ScriptedRun.runs = staticmethod(until_stopped), []
    is_valid = [True]
    host = replace(HOST, task_runner=cast("TaskRunner", SimpleNamespace(is_local=True)))
    subtask = SubTask(decision(1), host, lambda: is_valid[0])
    until(lambda: subtask.status().stage == pb.STAGE_RUNNING, "it runs")
    is_valid[0] = False
    found = subtask.status()
    assert found.stage == pb.STAGE_PAUSED
    assert "lease" in found.waiting_for
    is_valid[0] = True
    assert subtask.status().stage == pb.STAGE_RUNNING
    subtask.end()
    assert subtask.join(60)
