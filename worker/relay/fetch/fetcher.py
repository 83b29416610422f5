"""The relay's fetcher thread: connects to the source, stores its events, and reconnects."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from shardmerge.proto import errors, failpoints
from shardmerge.proto.common_pb2 import Stage
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Endpoint
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.relay.clock_offset import ClockOffset
from shardmerge.worker.relay.fetch.appender import Appender
from shardmerge.worker.relay.fetch.dump_connection import Dump
from shardmerge.worker.relay.fetch.dump_start import FirstStart, FromFile, ServerChanged, SourceState, Start, plan_start
from shardmerge.worker.relay.fetch.end_watch import EndWatch, ends_before
from shardmerge.worker.relay.fetch.fetch_counts import FetchCounts
from shardmerge.worker.relay.fetch.server_id import ServerIdOf
from shardmerge.worker.relay.fetch.stored_tail import check_tail
from shardmerge.worker.relay.log.files import FIRST_BYTE, disk_error, has_space
from shardmerge.worker.relay.log.relay_log import RelayLog
from shardmerge.worker.relay.log.xa_tracker import PrepareUnknown

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0
_CONFLICT_PAUSE_SECONDS = 1.0
_SPACE_CHECK_SECONDS = 1.0
_STEADY_SECONDS = 3.0
"""A connection that has worked for so long (with heartbeats at least) has resolved the error before it."""
_NAMESPACE = uuid.UUID("6f1f1f0e-6f0b-4f0e-9a52-3c9df5c06b10")


def store(dump: Dump, appender: Appender) -> None:
    """Consume all whole events that were received, write them, and publish the groups that have ended."""
    while True:
        dump.skip(appender.take(*dump.received()))
        event = dump.event()
        if event is None:
            break
        appender.feed(event)
    appender.flush()


@dataclass(frozen=True, slots=True)
class FetcherState:
    """``error``: the fetcher retries it with STAGE_RUNNING and waits until it is resolved with STAGE_PAUSED; ``final``:
    it ended the run."""

    stage: Stage = Stage.STAGE_RUNNING
    error: ShardmergeError | None = None
    final: bool = False

    @property
    def failed(self) -> ShardmergeError | None:
        """The error that ended the run, None while it runs or was stopped."""
        return self.error if self.final else None


class Fetcher:
    """One run of the thread: from :meth:`start` to :meth:`stop` or a permanent error.

    ``state``: replaced as a whole, so that an error and its handling are seen together. ``server_id``: called on each
    connection.
    """

    def __init__(
        self,
        log: RelayLog,
        endpoint: Endpoint,
        server_id: ServerIdOf,
        counts: FetchCounts,
        clock_offset: ClockOffset,
    ) -> None:
        """``counts``: over all runs of the relay. ``clock_offset``: of the source."""
        self._log = log
        self._counts = counts
        self._clock_offset = clock_offset
        self._endpoint = endpoint
        self._server_id = server_id
        self._logger = get_logger(source=log.source)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._dump: Dump | None = None
        self._progress = False
        self._verdict: ShardmergeError | None = None
        self._useless: ShardmergeError | None = None
        self._thread = threading.Thread(target=self._run, name=f"relay-{log.source}", daemon=True)
        self.state = FetcherState()

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

    def end_with(self, error: ShardmergeError) -> None:
        """Let the run end with ``error``; does not wait for that."""
        with self._lock:
            self._useless = error
            if self._dump is not None:
                self._dump.interrupt()

    @property
    def is_running(self) -> bool:
        """Whether it fetches, or will fetch by itself."""
        return self._thread.is_alive() and not self.state.final and not self._stop.is_set()

    def _run(self) -> None:
        with ExitStack() as ended:
            try:
                watch = EndWatch(self._log, self._endpoint, self._binlog_was_reset)
                watch.start()
                ended.callback(watch.stop)
                with closing(Appender(self._log, self._counts)) as appender:
                    self._fetch(appender)
            except OSError as error:
                self._fail(disk_error(error, self._log.source, self._log.directory / "relay.json"))
            except ShardmergeError as error:
                self._fail(error)
            except Exception as error:
                # If the thread only ended, all callers would wait for it for ever.
                self._logger.exception("relay reader failed")
                self._fail(self._crashed(error, self._log.head().position))
            with self._log.changed:
                self._log.changed.notify_all()

    def _fetch(self, appender: Appender) -> None:
        """Fetch until a stop is requested; raises permanent errors."""
        pause = _FIRST_PAUSE_SECONDS
        while not self._stop.is_set():
            self._progress = False
            error = self._session(appender)
            error = self._useless or error
            if self._stop.is_set():
                break
            if error.spec is errors.relay.SOURCE_CONFLICT:
                # Two replicas with one server-id end each other's dumps: each connection works for a short time.
                pause = min(max(2 * pause, _CONFLICT_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
            else:
                pause = _FIRST_PAUSE_SECONDS if self._progress else min(2 * pause, _LONGEST_PAUSE_SECONDS)
            # A log that is gone is fetched again only from a position that a task requests.
            if not error.spec.retryable or error.spec is errors.relay.RELAY_REMOVED:
                raise error
            self._counts.failed(error, is_final=False)
            self.state = FetcherState(error=error)
            self._logger.warning("relay interrupted", error=str(error), again_in=pause)
            if error.spec is errors.relay.DISK_FULL:
                self._wait_for_space()
            else:
                self._stop.wait(pause)
        self.state = replace(self.state, stage=Stage.STAGE_STOPPED)

    def _source_time(self) -> float:
        """The present Unix time of the source's clock; 0.0: not known yet."""
        ahead = self._clock_offset.seconds
        return 0.0 if ahead is None else time.time() + ahead

    def _fail(self, error: ShardmergeError) -> None:
        self._logger.error("relay stopped", error=str(error))
        self._counts.failed(error, is_final=True)
        self.state = FetcherState(Stage.STAGE_PAUSED, error, final=True)

    def _crashed(self, error: Exception, position: SourcePosition) -> ShardmergeError:
        return errors.relay.RELAY_CRASHED(
            source=self._log.source, position=position, reason=f"{type(error).__name__}: {error}"
        )

    def _binlog_was_reset(self, head: SourcePosition, end: SourcePosition) -> None:
        """The watch has found the source's binlog end before the head: no dump may continue."""
        with self._lock:
            if self._dump is not None:
                self._verdict = self._reset(head, end)
                self._dump.interrupt()

    def _reset(self, head: SourcePosition, end: SourcePosition) -> ShardmergeError:
        return errors.relay.SOURCE_LOG_RESET(
            source=self._log.source, position=head, found=end, reason="its binlog ends before that"
        )

    def _session(self, appender: Appender) -> ShardmergeError:
        """Dump until an error ends it; returns the error."""
        self._verdict = None
        try:
            return self._copy(appender)
        except ShardmergeError as error:
            return self._verdict or error
        except PrepareUnknown as unknown:
            return self._restart_earlier(unknown)
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
                if self._useless is not None:
                    return self._useless
            state = dump.state()
            start = self._start(appender, dump, state)
            server_id = self._server_id(dump.info)
            dump.begin(start, server_id, str(uuid.uuid5(_NAMESPACE, f"{server_id}")))
            began, since = self._log.head().offset, time.monotonic()
            while not self._stop.is_set():
                dump.receive()
                self._counts.heard()
                appender.set_received_at(self._source_time())
                store(dump, appender)
                if not self._progress and (
                    self._log.head().offset != began or time.monotonic() - since > _STEADY_SECONDS
                ):
                    self._progress = True
                    self.state = FetcherState()
        finally:
            with self._lock:
                self._dump = None
            dump.close()
        return errors.relay.DUMP_ENDED(source=self._log.source, position=self._log.head().position, reason="stopped")

    def _restart_earlier(self, unknown: PrepareUnknown) -> ShardmergeError:
        """Replace the log by a new one that begins one file earlier, where the PREPARE may be. Returns DUMP_ENDED, or
        the error."""
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
                log.mark_lost(unknown.name)
                self._logger.warning("XA PREPARE not found", xid=unknown.name, position=str(unknown.position))
                return self._retry(unknown)
            self._logger.warning(
                "new relay log begins earlier, to find an XA PREPARE", xid=unknown.name, position=str(earlier)
            )
            log.begin(earlier)
        except ShardmergeError as error:
            return error
        except OSError as error:
            return disk_error(error, log.source, log.directory / "relay.json")
        self._progress = True
        return self._retry(unknown)

    def _retry(self, unknown: PrepareUnknown) -> ShardmergeError:
        return errors.relay.DUMP_ENDED(
            source=self._log.source, position=unknown.position, reason=f"looking for XA PREPARE {unknown.name}"
        )

    def _wait_for_beginning(self) -> None:
        with self._log.changed:
            self._log.changed.wait_for(lambda: self._log.generation is not None or self._stop.is_set())

    def _start(self, appender: Appender, dump: Dump, state: SourceState) -> Start:
        """The start of the dump at this server; records in the log the server that it is written from."""
        log = self._log
        head = log.head()
        appender.source_end = state.end
        empty = not log.segments()
        if not empty and head.position.server == state.server:
            # Before anything else: a server that has lost its end may use the lost positions and GTIDs again.
            if ends_before(head.position, state.end):
                raise self._reset(head.position, state.end or head.position)
            check_tail(log, self._endpoint, state.end)
        there = dump.gtid_set_at(head.position) if empty and head.position.file and head.position.gtid_set else None
        plan = plan_start(log.source, log.require(), head, empty, state, log.directory, there)
        match plan:
            case FirstStart():
                log.connected(state.server, plan.floor, plan.settling)
            case ServerChanged():
                log.switched(state.server, plan.floor, plan.start.gtid_set)
                self._logger.warning(
                    "source is another server: continuing by GTID", was=head.position.server, now=state.server
                )
            case _:
                pass
        if dump.info.is_mariadb:
            log.set_executed(state.executed)
        failpoints.hit("relay.connected")
        if not isinstance(plan.start, FromFile):
            if not empty and not isinstance(plan, ServerChanged):
                log.renamed()
            return appender.connect(plan.start, state.server)
        start, gtid_set = plan.start, None
        if start.seed:
            gtid_set = dump.gtid_set_at(start.position)
            # The set can be read from the file itself only if the file has the position; otherwise the source's error
            # reports it.
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
