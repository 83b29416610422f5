"""Admits calls: bounds the calls of each method and the messages that are being received at once.

A call without a free place waits a second at most, then it is refused. As many calls as may run may wait; further ones
are refused at once. A caller that has begun a request and does not send it loses its place: the oldest such calls are
cancelled, both for a place among the method's calls and for a place to read a message. In the second case the newest
call is served first, so that a flood of such requests delays a real one by the patience at most.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from shardmerge.proto.rpc.limits import MethodLimit

_LONGEST_READING_SECONDS = 60.0
_LONGEST_WAIT_SECONDS = 20.0
_OVERDUE_SECONDS = 0.1  # a message usually arrives with its call
_CANCEL_SECONDS = 0.1  # a cancelled call releases its place within this time
_LONGEST_PLACE_WAIT_SECONDS = 1.0


class Full(Exception):
    """There is no free place. The text names the exceeded limit."""


class _Stage(enum.Enum):
    COMING = enum.auto()
    RECEIVED = enum.auto()
    GIVEN_UP = enum.auto()
    """Its call is cancelled and ends soon."""


@dataclass(slots=True, eq=False)
class _Message:
    """A request's message. ``cancel`` ends its call. ``turn``: set when it may be read, or when its call was cancelled.

    ``began``: when it was first waited for; ``since``: when its reading began. Seconds of the clock.
    """

    method: str
    began: float
    since: float
    cancel: Callable[[], object]
    turn: threading.Event = field(default_factory=threading.Event)
    stage: _Stage = _Stage.COMING


class Readings:
    """Places in which messages are read, of all methods of a server. Thread-safe.

    ``places``: their number. ``patience``: seconds; see :class:`shardmerge.proto.rpc.limits.ServerLimits`.
    """

    def __init__(self, places: int, patience: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._places = places
        self._patience = patience
        self._clock = clock
        self._lock = threading.Lock()
        self._read: dict[_Message, None] = {}  # in the order in which their reading began
        self._waiting: dict[_Message, None] = {}  # in the order of arrival
        self._given_up: Counter[str] = Counter()  # by method: cancelled calls that have not ended

    def enter(self, method: str, cancel: Callable[[], object]) -> _Message:
        """Take a place for a message of ``method`` whose call ``cancel`` ends; release it with :meth:`leave`.

        Raises :class:`Full` when no place became free.
        """
        now = self._clock()
        message = _Message(method, now, now, cancel)
        with self._lock:
            stale = self._stale(now, _LONGEST_READING_SECONDS)
            if len(self._read) < self._places:
                self._read[message] = None
            else:
                self._waiting[message] = None
        if stale is not None:
            stale.cancel()
        if message in self._waiting:
            self._wait(message)
        return message

    def received(self, message: _Message) -> None:
        """The message has arrived: its call is no longer cancelled, and it keeps its place until it is parsed."""
        with self._lock:
            if message.stage is _Stage.COMING:
                message.stage = _Stage.RECEIVED

    def leave(self, message: _Message) -> None:
        """Release the place: the message was parsed, or will not arrive; the newest waiting one is next."""
        with self._lock:
            del self._read[message]
            self._ended(message)
            if self._waiting:
                following, _ = self._waiting.popitem()
                following.since = self._clock()
                self._read[following] = None
                following.turn.set()

    def given_up(self, method: str) -> int:
        """The number of calls of ``method`` that were cancelled and have not ended."""
        with self._lock:
            return self._given_up[method]

    def evict(self, method: str) -> float:
        """Cancel an unfinished request of ``method``: one whose message is overdue.

        Returns 0.0 if it did, else the seconds until a request may be overdue.
        """
        now = self._clock()
        with self._lock:
            coming = [
                each
                for each in itertools.chain(self._waiting, self._read)
                if each.method == method and each.stage is _Stage.COMING
            ]
            if not coming:
                return _OVERDUE_SECONDS
            oldest = min(coming, key=lambda each: each.began)
            if now - oldest.began < _OVERDUE_SECONDS:
                return oldest.began + _OVERDUE_SECONDS - now
            self._give_up(oldest)
        oldest.turn.set()
        oldest.cancel()
        return 0.0

    def _give_up(self, message: _Message) -> None:
        """Mark the message as given up. Needs the lock; the caller cancels the call."""
        message.stage = _Stage.GIVEN_UP
        self._given_up[message.method] += 1

    def _ended(self, message: _Message) -> None:
        """Forget a given-up message that has ended. Needs the lock."""
        if message.stage is _Stage.GIVEN_UP:
            self._given_up[message.method] -= 1

    def _wait(self, message: _Message) -> None:
        deadline = message.since + _LONGEST_WAIT_SECONDS
        while True:
            now = self._clock()
            with self._lock:
                if message in self._read:
                    return
                if message.stage is _Stage.GIVEN_UP or now >= deadline:
                    del self._waiting[message]
                    self._ended(message)
                    raise Full("too many requests have begun whose messages have not arrived")
                stale = self._stale(now, self._patience)
                oldest = next((each.since for each in self._read if each.stage is _Stage.COMING), now)
            if stale is not None:
                stale.cancel()
                message.turn.wait(_CANCEL_SECONDS)
            else:
                message.turn.wait(min(max(oldest + self._patience - now, 0.01), deadline - now))

    def _stale(self, now: float, seconds: float) -> _Message | None:
        """The oldest message if it has been arriving for ``seconds``; it is given up from now on. Needs the lock."""
        for message in self._read:
            if message.stage is _Stage.COMING:
                if now - message.since < seconds:
                    return None
                self._give_up(message)
                return message
        return None


@dataclass(frozen=True, slots=True)
class MethodCalls:
    """``running``: calls of the method that run; ``oldest_seconds``: age of the oldest one."""

    method: str
    running: int
    oldest_seconds: float


class RunningCalls:
    """The calls that run at a server, for its report about itself. Thread-safe."""

    def __init__(self) -> None:
        self._admissions: list[Admission] = []

    def add(self, admission: Admission) -> None:
        """Report the calls of one more method."""
        self._admissions.append(admission)

    def figures(self) -> tuple[MethodCalls, ...]:
        """Of the methods that have running calls."""
        found = (admission.running() for admission in tuple(self._admissions))
        return tuple(sorted((each for each in found if each.running), key=lambda each: each.method))


class Admission:
    """The calls of one method. Thread-safe."""

    def __init__(
        self, method: str, limit: MethodLimit, readings: Readings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._method = method
        self._limit = limit
        self._readings = readings
        self._clock = clock
        self._free = threading.Condition()
        self._admitted = 0
        self._running = 0
        self._numbers = itertools.count()
        self._began: dict[int, float] = {}  # the running calls by number, the oldest first
        self._of_connection: Counter[str] = Counter()
        self._most_admitted = 2 * limit.calls
        name = "grpc-" + method.rpartition("/")[2]
        self.pool = ThreadPoolExecutor(self._most_admitted, thread_name_prefix=name)
        """A separate thread pool, so that calls of other methods cannot use up its threads."""

    def admit(self) -> bool:
        """Whether one more call may run or wait for a place; if so, call :meth:`release` afterwards."""
        with self._free:
            # The thread of a cancelled call becomes free soon: until then the new call waits in the pool's queue.
            if self._admitted - self._readings.given_up(self._method) >= self._most_admitted:
                return False
            self._admitted += 1
            return True

    def release(self) -> None:
        with self._free:
            self._admitted -= 1

    @contextlib.contextmanager
    def place(self) -> Generator[None]:
        """A place among the method's calls, for an admitted call. Raises :class:`Full` when none became free."""
        number = self._take_place()
        try:
            yield
        finally:
            with self._free:
                self._running -= 1
                del self._began[number]
                self._free.notify()

    def running(self) -> MethodCalls:
        """The calls that run now."""
        with self._free:
            oldest = next(iter(self._began.values()), None)
            seconds = 0.0 if oldest is None else max(0.0, self._clock() - oldest)
            return MethodCalls(self._method, len(self._began), seconds)

    def _take_place(self) -> int:
        """The number of the call."""
        deadline = self._clock() + _LONGEST_PLACE_WAIT_SECONDS
        with self._free:
            while self._running - self._readings.given_up(self._method) >= self._limit.calls:
                remaining = deadline - self._clock()
                if remaining <= 0:
                    raise self.full()
                overdue = self._readings.evict(self._method)
                if overdue:
                    self._free.wait(min(remaining, overdue))
            self._running += 1
            number = next(self._numbers)
            self._began[number] = self._clock()
            return number

    @contextlib.contextmanager
    def connection(self, peer: str) -> Generator[None]:
        """A place among the method's calls of one connection. Raises :class:`Full` at once when there is none."""
        with self._free:
            if self._of_connection[peer] >= self._limit.per_connection:
                raise Full(f"{self._limit.per_connection} of them run already on this connection")
            self._of_connection[peer] += 1
        try:
            yield
        finally:
            with self._free:
                self._of_connection[peer] -= 1
                if not self._of_connection[peer]:
                    del self._of_connection[peer]

    def full(self) -> Full:
        """Why a call was refused."""
        return Full(f"{self._limit.calls} of them run already")
