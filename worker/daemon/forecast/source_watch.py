"""Measures a source and its relay log in the background, and keeps the newest forecast of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from shardmerge.proto import config_pb2
from shardmerge.proto.process.periodic import LoopThread, Rounds, repeat
from shardmerge.proto.warnings.clocks import ClockDifference
from shardmerge.worker.daemon.forecast.binlog_expiry import FetchProgress, SourceBytes, expiry
from shardmerge.worker.daemon.forecast.figures import NO_FORECAST, SourceForecast
from shardmerge.worker.daemon.forecast.pause import relay_pause, task_pause
from shardmerge.worker.daemon.forecast.rates import RateWindow
from shardmerge.worker.daemon.forecast.relay_disk import RelayDisk
from shardmerge.worker.daemon.forecast.target_clocks import TargetClocks
from shardmerge.worker.relay.relay import Relay
from shardmerge.worker.relay.source_clock import PollingClock

_SECONDS = 2.0
_OLD_SECONDS = 60.0


class SourceWatch:
    """A thread that measures every two seconds without a query: it reads what the clock and the relay hold.
    ``configs``: of all tasks of the source, by name."""

    def __init__(
        self, relay: Relay, clock: PollingClock, configs: Callable[[], Mapping[str, config_pb2.SubTaskConfig]]
    ) -> None:
        self._relay, self._clock = relay, clock
        self._targets = TargetClocks(configs)
        self._progress = FetchProgress()
        self._source_bytes = SourceBytes()
        self._written = RateWindow()
        self._shrinking = RateWindow()
        self._forecast = NO_FORECAST
        self._measured_at = time.monotonic()
        self._rounds = Rounds("cannot measure the relay log")  # an error of the relay log is also in its status
        self._thread = LoopThread("source-watch", lambda stop: repeat(self._round, _SECONDS, stop))

    def start(self) -> None:
        self._targets.start()
        self._thread.start()

    def stop(self) -> None:
        self._targets.stop()
        self._thread.end()

    def current(self) -> SourceForecast:
        """The newest forecast; never waits. One that is old has no meaning."""
        return self._forecast if time.monotonic() - self._measured_at < _OLD_SECONDS else NO_FORECAST

    def _round(self) -> None:
        self._rounds.is_done(self._measure)

    def _measure(self) -> None:
        self._forecast, self._measured_at = self._measured(), time.monotonic()

    def _measured(self) -> SourceForecast:
        at, now = time.monotonic(), time.time()
        reading, head, figures = self._clock.reading(), self._relay.head(), self._relay.figures()
        is_fetching = not self._relay.unknown()
        if reading.end.position.file and self._relay.relay_id:
            self._progress.add(at, reading.end, head)
        self._source_bytes.add(at, reading.files)
        self._written.add(at, figures.fetched.bytes_written)
        disk = None
        if figures.space is not None:
            self._shrinking.add(at, -figures.space.available)
            purgeable = self._relay.purgeable_bytes()
            space = figures.space
            disk = RelayDisk(space.capacity, space.available, purgeable, self._shrinking.rate(), self._written.rate())
        expires = expiry(
            reading,
            head.position,
            self._progress.until,
            self._progress.speed(),
            self._source_bytes.rate(),
            is_fetching=is_fetching,
        )
        clock = reading.clock
        return SourceForecast(
            now,
            expires,
            disk,
            task_pause(disk, expires, now, is_fetching=is_fetching),
            relay_pause(expires, now),
            None if clock is None else ClockDifference(f"source {clock.whose}", "the worker", clock.ahead, clock.error),
            self._targets.current(),
        )
