"""Starts and ends the process dm-worker.

Here is imported only what reads the configuration. Everything else is imported while the JVM of Spark starts. The
worker listens, and is announced in etcd, before Spark is ready.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import click

from shardmerge.proto import errors, failpoints, networks, secret
from shardmerge.proto import log as logs
from shardmerge.proto.config.daemon.daemon_file import load_daemon
from shardmerge.proto.config.daemon.model import WorkerFile
from shardmerge.proto.config.daemon.spark import MASTER, refused_connect
from shardmerge.proto.config.daemon.tls import etcd_tls_of, tls_of
from shardmerge.proto.config.daemon_flags import flag_names, flags_of, given_flags, with_two_dashes
from shardmerge.proto.config.secrets.key_file import key_file
from shardmerge.proto.diagnostics import recent_lines
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.networks import Networks
from shardmerge.proto.process.termination import call_on_termination
from shardmerge.proto.tls.process import use_in_daemon
from shardmerge.proto.tracing.otel import check_installed, otel_tracer
from shardmerge.proto.tracing.spans import end_tracing, use_tracer
from shardmerge.worker.core import inflation
from shardmerge.worker.core.spark.begin import begin_driver
from shardmerge.worker.core.spark.class_archive import find_archive, installed_folder, own_folder, use_options
from shardmerge.worker.core.spark.jvm import Java
from shardmerge.worker.core.spark.scratch_dir import ScratchDir
from shardmerge.worker.core.spark.settings import effective, is_protected
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.task_runner import TaskFailed, TaskRunner
from shardmerge.worker.daemon.prepare import make_in_background, prepare
from shardmerge.worker.daemon.restarts import RESTARTS, restarts_so_far
from shardmerge.worker.daemon.start_signals import end_children, unless_stopped
from shardmerge.worker.rules.python import allowed_modules

log = get_logger()

Complete = Callable[[], TaskRunner]
"""Waits until the processes that have been started can run tasks. It starts none by itself."""

Begin = Callable[[WorkerFile, ScratchDir], Complete]
"""Starts the processes that run a worker's tasks, with its configuration; the folder is for their temporary files."""

_EXIT_CONFIG = 2
_EXIT_RUNTIME = 1
_SIGNAL_SECONDS = 0.1
"""A signal that has arrived sets the event from another thread; a restart in place would lose it."""


@flags_of(WorkerFile)
def command(path: Path | None, **flags: str | None) -> None:
    """Hold one source: relay its binlog, take snapshots, replicate through Spark. A flag wins over the file's key.

    `dm-worker pack` makes an archive of this environment for Spark's executors: `dm-worker pack --help`.
    """
    try:
        given = load_daemon(WorkerFile, path, given_flags(flags))
        config = given.model
        logs.configure("dm-worker", config.log_level, config.log_format, config.log_file, recent_lines.OF_PROCESS)
        key = key_file(config.secret_key_path, os.environ)
        secret.use(key.path, may_be_missing=key.is_default)
        networks.use(Networks.of(config.allowed_networks))
        inflation.use(config.max_inflated_event_mib << 20)
        allowed_modules.use(config.transform_modules)
        if config.trace_endpoint:
            check_installed()
    except ShardmergeError as error:
        _fail(error, _EXIT_CONFIG)
    for note in given.notes:
        log.warning("configuration", note=note)
    try:
        use_in_daemon(tls_of(config), etcd_tls_of(config))
        if config.is_open:
            _warn(errors.tls.INSECURE(address=config.advertise_addr))
        spark = _checked(config)
        if config.ssl_ca and not is_protected(spark):
            _warn(errors.tls.OPEN_SPARK(master=spark[MASTER]))
    except ShardmergeError as error:
        _fail(error, _EXIT_CONFIG)
    stop = _catch_signals()
    try:
        begin: Begin = click.get_current_context().obj
        lost = _serve(config, stop, begin)
    except ShardmergeError as error:
        if config.log_file:
            log.error("ended", error=str(error), workaround=error.workaround)  # noqa: TRY400 - no traceback
        _fail(error, _EXIT_RUNTIME)
    if lost and not stop.wait(_SIGNAL_SECONDS):
        # A JVM cannot be started twice in one process: restart in place, with the same arguments.
        log.warning("restarting in place")
        counted = {**os.environ, RESTARTS: str(restarts_so_far() + 1)}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], counted)  # noqa: S606 - our own arguments


def _checked(config: WorkerFile) -> Mapping[str, str]:
    """Spark's settings. Raises the error with which Spark would not start."""
    refused = refused_connect(config.spark_settings(), os.environ.get("SPARK_REMOTE", ""))
    if refused is not None:
        raise refused
    return effective(config.spark_settings(), advertised=config.advertise_addr)


def main(begin: Begin | None = None) -> None:
    """The console script. ``begin``: only tests pass it; no configuration chooses anything but Spark."""
    if sys.argv[1:2] == ["pack"]:
        from shardmerge.worker.daemon.pack.command import pack

        pack(sys.argv[2:], prog_name="dm-worker pack")
    if sys.argv[1:2] == ["prepare"]:
        prepare(sys.argv[2:], prog_name="dm-worker prepare")
    command(with_two_dashes(sys.argv[1:], flag_names(WorkerFile)), prog_name="dm-worker", obj=begin or _begin_spark)


def _begin_spark(config: WorkerFile, scratch: ScratchDir) -> Complete:
    own = own_folder(config.relay_dir)

    def options(java: Java) -> Sequence[str]:
        archive = find_archive(java, (installed_folder(), own))
        if archive is None:
            make_in_background(own)
        return use_options(archive)

    begun = begin_driver(config.spark_settings(), scratch, config.advertise_addr, options)
    # This takes seconds, in which the JVM starts.
    importlib.import_module("shardmerge.worker.daemon.daemon")
    from shardmerge.worker.core.spark.runner import SparkRunner, begin_scripts

    if begun.jvm is None:
        begin_scripts(begun.settings, scratch.path)
    return lambda: SparkRunner(begun.settings, begun.jvm, float(config.drain_seconds))


def _serve(config: WorkerFile, stop: threading.Event, begin: Begin) -> bool:
    """Run until stopped; True when the Spark driver was lost."""
    seconds = float(config.drain_seconds)
    with ExitStack() as started:
        scratch = ScratchDir(f"{config.name} {Path(config.relay_dir).resolve()}")
        started.callback(scratch.close)
        started.callback(end_children)  # a failed start may leave a JVM
        tasks = started.enter_context(ExitStack())  # ends after the daemon, which drains them
        log.info("Spark is starting")
        began = time.monotonic()

        def begin_tasks() -> Complete:
            failpoints.hit("spark.starting")
            return begin(config, scratch)

        # Processes start first: a fork while gRPC threads run would skip gRPC's fork handlers.
        complete = unless_stopped(begin_tasks, stop, seconds)
        if complete is None:
            return False
        if config.trace_endpoint:
            use_tracer(otel_tracer(config.trace_endpoint, "dm-worker", config.name))
            started.callback(end_tracing)
        from shardmerge.worker.daemon.daemon import Daemon

        daemon = Daemon(config, stop)
        started.callback(daemon.close)
        daemon.start()

        def complete_tasks() -> TaskRunner:
            failpoints.hit("spark.connecting")
            runner = complete()
            tasks.callback(runner.stop)
            if runner.is_local:
                _probe(runner)
            else:
                _survey(runner, config.advertise_addr)  # executors elsewhere call the worker, which listens already
            return runner

        runner = unless_stopped(complete_tasks, stop, seconds)
        if runner is None:
            daemon.check_access()
            return False
        log.info("Spark is ready", seconds=round(time.monotonic() - began, 1), spark_ui=runner.ui_url)
        daemon.run(runner)
        return runner.lost


def _probe(runner: TaskRunner) -> None:
    """Run one task: Spark's slow first job runs now, and the decoder is checked where tasks run."""
    from shardmerge.worker.binlog.decoder_probe import ProbeTask

    [outcome] = runner.run("probe", 1, ProbeTask(), StopSignal())
    if isinstance(outcome, TaskFailed):
        if outcome.error.spec is not errors.worker.DECODER_NOT_COMPILED:
            raise outcome.error
        _warn_of_probe(outcome.error)


def _survey(runner: TaskRunner, address: str) -> None:
    """The probe of a cluster: it checks the environment of every executor."""
    from shardmerge.worker.core.spark.runner import SparkRunner
    from shardmerge.worker.core.spark.survey import survey

    assert isinstance(runner, SparkRunner)  # noqa: S101 - no other runner has executors elsewhere
    warning = survey(runner, address)
    if warning is not None:
        _warn_of_probe(warning)


def _warn_of_probe(error: ShardmergeError) -> None:
    log.warning("probe", error=str(error), workaround=error.workaround)


def _warn(error: ShardmergeError) -> None:
    log.warning("configuration", error=str(error), workaround=error.workaround)


def _catch_signals() -> threading.Event:
    """Handle SIGTERM and SIGINT. The first signal drains the worker, or stops its start. The second ends the process at
    once; the JVM ends then too because its standard input closes."""
    stop = threading.Event()
    call_on_termination(stop.set)
    return stop


def _fail(error: ShardmergeError, code: int) -> NoReturn:
    click.echo(f"error: {error}\n       what to do: {error.workaround}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
