"""The relay's reader thread: connects, stores, connects again."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from proto import errors, hooks
from proto.common_pb2 import Stage
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.connection import Endpoint
from worker.position import SourcePosition
from worker.relay.appender import Appender
from worker.relay.dump import Dump
from worker.relay.files import FIRST_BYTE, disk_error, has_space
from worker.relay.groups import PrepareUnknown
from worker.relay.log import RelayLog
from worker.relay.server_id import ServerIdOf
from worker.relay.source_end import EndWatch, lies_behind
from worker.relay.start import Begins, FromFile, SourceState, Start, Switches, plan_start

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0
_CONFLICT_PAUSE_SECONDS = 1.0
_SPACE_CHECK_SECONDS = 1.0
_STEADY_SECONDS = 3.0
"""A connection that lived so long (heartbeats at least) has overcome the error before it."""
_NAMESPACE = uuid.UUID("6f1f1f0e-6f0b-4f0e-9a52-3c9df5c06b10")


def store(dump: Dump, appender: Appender) -> None:
    """Take all whole events that have come, write them, and publish the groups that have ended."""
    while True:
        dump.skip(appender.take(*dump.received()))
        event = dump.event()
        if event is None:
            break
        appender.feed(event)
    appender.flush()


@dataclass(frozen=True, slots=True)
class ReaderState:
    """``error``: being retried beside STAGE_RUNNING, waited out beside STAGE_PAUSED; ``final``: it ended the run."""

    stage: Stage = Stage.STAGE_RUNNING
    error: ShardmergeError | None = None
    final: bool = False

    @property
    def failed(self) -> ShardmergeError | None:
        """The error that ended the run, None while it goes on or was stopped."""
        return self.error if self.final else None


class Reader:
    """One run of the thread: from :meth:`start` to :meth:`stop` or an error that does not mend itself.

    ``state``: replaced as a whole, so that who sees an error sees what became of it. ``server_id``: asked on each
    connection.
    """

    def __init__(self, log: RelayLog, endpoint: Endpoint, server_id: ServerIdOf) -> None:
        self._log = log
        self._endpoint = endpoint
        self._server_id = server_id
        self._logger = get_logger(source=log.source)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._dump: Dump | None = None
        self._progress = False
        self._verdict: ShardmergeError | None = None
        self._thread = threading.Thread(target=self._run, name=f"relay-{log.source}", daemon=True)
        self.state = ReaderState()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; returns when it has ended."""
        self._stop.set()
        with self._lock:
            if self._dump is not None:
                self._dump.interrupt()
        with self._log.changed:
            self._log.changed.notify_all()
        self._thread.join()

    @property
    def is_running(self) -> bool:
        """Whether it fetches, or will by itself."""
        return self._thread.is_alive() and not self.state.final and not self._stop.is_set()

    def _run(self) -> None:
        with ExitStack() as ended:
            try:
                watch = EndWatch(self._log, self._endpoint, self._behind)
                watch.start()
                ended.callback(watch.stop)
                with closing(Appender(self._log)) as appender:
                    self._fetch(appender)
            except OSError as error:
                self._fail(disk_error(error, self._log.source, self._log.directory / "relay.json"))
            except ShardmergeError as error:
                self._fail(error)
            except Exception as error:
                # A thread that just ended would leave everybody waiting for it.
                self._logger.exception("relay reader failed")
                self._fail(self._crashed(error, self._log.head().position))
            with self._log.changed:
                self._log.changed.notify_all()

    def _fetch(self, appender: Appender) -> None:
        """Until told to stop; raises what does not mend itself."""
        pause = _FIRST_PAUSE_SECONDS
        while not self._stop.is_set():
            self._progress = False
            error = self._session(appender)
            if self._stop.is_set():
                break
            if error.spec is errors.relay.SOURCE_CONFLICT:
                # Two replicas with one server-id end each other: each connection works for a moment.
                pause = min(max(2 * pause, _CONFLICT_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
            else:
                pause = _FIRST_PAUSE_SECONDS if self._progress else min(2 * pause, _LONGEST_PAUSE_SECONDS)
            if not error.spec.retryable:
                raise error
            self.state = ReaderState(error=error)
            self._logger.warning("relay interrupted", error=str(error), again_in=pause)
            if error.spec is errors.relay.DISK_FULL:
                self._wait_for_space()
            else:
                self._stop.wait(pause)
        self.state = replace(self.state, stage=Stage.STAGE_STOPPED)

    def _fail(self, error: ShardmergeError) -> None:
        self._logger.error("relay stopped", error=str(error))
        self.state = ReaderState(Stage.STAGE_PAUSED, error, final=True)

    def _crashed(self, error: Exception, position: SourcePosition) -> ShardmergeError:
        return errors.relay.RELAY_CRASHED(
            source=self._log.source, position=position, reason=f"{type(error).__name__}: {error}"
        )

    def _behind(self, head: SourcePosition, end: SourcePosition) -> None:
        """The watch has seen the source's binlog end before the head: no dump may go on."""
        with self._lock:
            if self._dump is not None:
                self._verdict = self._reset(head, end)
                self._dump.interrupt()

    def _reset(self, head: SourcePosition, end: SourcePosition) -> ShardmergeError:
        return errors.relay.SOURCE_LOG_RESET(
            source=self._log.source, position=head, found=end, reason="its binlog ends before that"
        )

    def _session(self, appender: Appender) -> ShardmergeError:
        """Dump until something ends it; what did."""
        self._verdict = None
        try:
            return self._copy(appender)
        except ShardmergeError as error:
            return self._verdict or error
        except PrepareUnknown as unknown:
            return self._reach_back(unknown)
        except OSError as error:
            return disk_error(error, self._log.source, self._log.directory / "relay.json")
        except Exception as error:
            self._logger.exception("relay reader failed")
            return self._crashed(error, appender.position)

    def _copy(self, appender: Appender) -> ShardmergeError:
        self._wait_for_beginning()
        if self._stop.is_set():
            return errors.relay.RELAY_NOT_BEGUN(source=self._log.source)
        dump = Dump.connect(self._log.source, self._endpoint)
        try:
            with self._lock:
                self._dump = dump
            state = dump.state()
            start = self._start(appender, dump, state)
            server_id = self._server_id(dump.info)
            dump.begin(start, server_id, str(uuid.uuid5(_NAMESPACE, f"{server_id}")))
            began, since = self._log.head().offset, time.monotonic()
            while not self._stop.is_set():
                dump.receive()
                appender.arrived(time.time())
                store(dump, appender)
                if not self._progress and (
                    self._log.head().offset != began or time.monotonic() - since > _STEADY_SECONDS
                ):
                    self._progress = True
                    self.state = ReaderState()
        finally:
            with self._lock:
                self._dump = None
            dump.close()
        return errors.relay.DUMP_ENDED(source=self._log.source, position=self._log.head().position, reason="stopped")

    def _reach_back(self, unknown: PrepareUnknown) -> ShardmergeError:
        """Begin the log anew, one file earlier: there the PREPARE may be. DUMP_ENDED, or what went wrong."""
        log = self._log
        first = log.first().position
        try:
            with closing(Dump.connect(log.source, self._endpoint)) as dump:
                same = dump.info.identity == log.require().server and first.server in ("", dump.info.identity)
                files = dump.files_before(first.file) if same else None
            if same and first.pos > FIRST_BYTE:
                earlier = replace(first, pos=FIRST_BYTE, gtid_set="")
            elif files:
                earlier = SourcePosition(files[-1], FIRST_BYTE, server=first.server)
            else:
                log.lost(unknown.name)
                self._logger.warning("XA PREPARE is nowhere", xid=unknown.name, position=str(unknown.position))
                return self._again(unknown)
            self._logger.warning("relay log begins anew, for an XA PREPARE", xid=unknown.name, position=str(earlier))
            log.begin(earlier)
        except ShardmergeError as error:
            return error
        except OSError as error:
            return disk_error(error, log.source, log.directory / "relay.json")
        self._progress = True
        return self._again(unknown)

    def _again(self, unknown: PrepareUnknown) -> ShardmergeError:
        return errors.relay.DUMP_ENDED(
            source=self._log.source, position=unknown.position, reason=f"looking for XA PREPARE {unknown.name}"
        )

    def _wait_for_beginning(self) -> None:
        with self._log.changed:
            self._log.changed.wait_for(lambda: self._log.generation is not None or self._stop.is_set())

    def _start(self, appender: Appender, dump: Dump, state: SourceState) -> Start:
        """What to ask this server for; the log has been told whom it is written from."""
        log = self._log
        head = log.head()
        appender.source_end = state.end
        empty = not log.segments()
        plan = plan_start(log.source, log.require(), head, empty, state, log.directory)
        match plan:
            case Begins():
                log.connected(state.server, plan.floor, plan.settling)
            case Switches():
                log.switched(state.server, plan.floor, plan.start.gtid_set)
                self._logger.warning(
                    "source is another server: going on by GTID", was=head.position.server, now=state.server
                )
            case _:
                pass
        if dump.info.is_mariadb:
            log.executed(state.executed)
        hooks.reach("relay.connected")
        if not isinstance(plan.start, FromFile):
            if not empty and not isinstance(plan, Switches):
                log.renamed()
            return appender.connect(plan.start, state.server)
        if not empty and lies_behind(head.position, state.end):
            raise self._reset(head.position, state.end or head.position)
        start, gtid_set = plan.start, None
        if start.seed:
            gtid_set = dump.gtid_set_at(start.position)
            # Where the set must be read from the file itself, the place must be in it: else the source shall say so.
            readable = not dump.info.is_mariadb and state.end is not None and state.end.reaches(start.position)
            start = replace(start, seed=readable)
        return appender.connect(start, state.server, gtid_set)

    def _wait_for_space(self) -> None:
        """Raises OSError when the disk fails otherwise."""
        self.state = replace(self.state, stage=Stage.STAGE_PAUSED)
        while not self._stop.wait(_SPACE_CHECK_SECONDS):
            if has_space(self._log.directory):
                break
        self.state = replace(self.state, stage=Stage.STAGE_RUNNING)
