"""Compares the clocks of the targets with the worker's: when a task is new, and every few minutes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import pymysql

from shardmerge.proto import config_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.process.periodic import CLOCK, Clock, LoopThread, Rounds, repeat
from shardmerge.proto.warnings.clocks import ClockDifference
from shardmerge.worker.core.mysql.connection import Endpoint, Side, connect
from shardmerge.worker.core.mysql.server_clock import ClockReading, read_clock

_LOOK_SECONDS = 5.0
_AGAIN_SECONDS = 300.0
_OLD_SECONDS = 3 * _AGAIN_SECONDS
_ANSWER_SECONDS = 10.0
_READINGS = 3

Read = Callable[[Endpoint], ClockReading | None]


def read_target_clock(endpoint: Endpoint) -> ClockReading | None:
    """The most exact of a few readings on a connection of its own; None: the target does not answer."""
    try:
        session = connect(endpoint, Side.TARGET, name="target", read_timeout=_ANSWER_SECONDS)
    except (pymysql.MySQLError, ShardmergeError):
        return None  # a task that needs the target reports it
    try:
        readings = [read_clock(session, f"target {endpoint.host}:{endpoint.port}") for _ in range(_READINGS)]
    except pymysql.MySQLError:
        return None
    finally:
        session.close()
    return min(readings, key=lambda each: each.error)


@dataclass(frozen=True, slots=True)
class _Measured:
    """``difference``: None: the target did not answer."""

    at: float
    difference: ClockDifference | None


class TargetClocks:
    """A thread of its own, because a target that does not answer must delay nothing else. ``configs``: of all tasks of
    the source, by name."""

    def __init__(
        self,
        configs: Callable[[], Mapping[str, config_pb2.SubTaskConfig]],
        read: Read = read_target_clock,
        clock: Clock = CLOCK,
    ) -> None:
        self._configs = configs
        self._read = read
        self._found: dict[tuple[str, int], _Measured] = {}
        self._clock = clock
        self._rounds = Rounds("the clock of a target cannot be read")
        self._thread = LoopThread("target-clocks", self.run)
        self.start = self._thread.start

    def stop(self) -> None:
        """End it without waiting: it may wait for a target."""
        self._thread.end(0)

    def current(self) -> Mapping[str, ClockDifference]:
        """By task; a task whose target has not answered for a quarter of an hour has none."""
        now = self._clock.now()
        found = {task: self._found.get(_place(config)) for task, config in self._configs().items()}
        return {
            task: each.difference
            for task, each in found.items()
            if each is not None and each.difference is not None and now - each.at < _OLD_SECONDS
        }

    def run(self, stop: threading.Event) -> None:
        """Read clocks until ``stop``, in this thread."""
        repeat(partial(self._round, stop), _LOOK_SECONDS, stop, clock=self._clock)

    def _round(self, stop: threading.Event) -> None:
        configs = {_place(config): config for config in self._configs().values()}
        for place, config in configs.items():
            known = self._found.get(place)
            if stop.is_set():
                return
            if known is None or self._clock.now() - known.at >= _AGAIN_SECONDS:
                self._found[place] = _Measured(self._clock.now(), None)
                self._rounds.is_done(partial(self._measure, place, config))
        self._found = {place: each for place, each in self._found.items() if place in configs}

    def _measure(self, place: tuple[str, int], config: config_pb2.SubTaskConfig) -> None:
        self._found[place] = _Measured(self._clock.now(), self._measured(config))

    def _measured(self, config: config_pb2.SubTaskConfig) -> ClockDifference | None:
        try:
            reading = self._read(Endpoint.from_proto(config.target))
        except ShardmergeError:
            return None  # a secret that cannot be read: the task reports it
        if reading is None:
            return None
        return ClockDifference(reading.whose, "the worker", reading.ahead, reading.error)


def _place(config: config_pb2.SubTaskConfig) -> tuple[str, int]:
    return config.target.host, config.target.port
