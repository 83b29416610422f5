"""Who may go on: so many calls of each method at once, so many messages on their way at once.

A call that finds no place is refused at once; it never waits for another's end. The one thing that is waited for is a
place to read one's message in. There a caller who has begun a request and does not send it gives way: the oldest ones
are cancelled, and the newest call is served first, so that a flood of such requests delays a real one by the patience
and no more.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from proto.rpc_limits import MethodLimit

_LONGEST_READING_SECONDS = 60.0
_LONGEST_WAIT_SECONDS = 20.0
_OVERDUE_SECONDS = 0.1  # a message mostly comes with its call
_CANCEL_SECONDS = 0.1  # a call that is cancelled gives its place back within them


class Full(Exception):
    """There is no place. The text names what there is too much of."""


@dataclass(slots=True, eq=False)
class _Message:
    """One that is to come. ``cancel`` ends its call. ``turn``: set when it may be read, or was given up.

    ``given_up``: its call is never cancelled from now on: it was, or the message has come.
    """

    method: str
    since: float
    cancel: Callable[[], object]
    turn: threading.Event = field(default_factory=threading.Event)
    given_up: bool = False


class Readings:
    """Places in which messages are read, of all methods of a server. Thread-safe.

    ``places``: so many. ``patience``: seconds; see :class:`proto.rpc_limits.ServerLimits`.
    """

    def __init__(self, places: int, patience: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._places = places
        self._patience = patience
        self._clock = clock
        self._lock = threading.Lock()
        self._read: dict[_Message, None] = {}  # in the order of their begin
        self._waiting: dict[_Message, None] = {}  # in the order of their coming

    def enter(self, method: str, cancel: Callable[[], object]) -> _Message:
        """A place, for a message of ``method`` whose call ``cancel`` ends; give it back with :meth:`leave`.

        Raises :class:`Full` when no place became free.
        """
        now = self._clock()
        message = _Message(method, now, cancel)
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
        """The message has arrived: its call is not cancelled any more, and it keeps its place until it is parsed."""
        message.given_up = True

    def leave(self, message: _Message) -> None:
        """It was parsed, or will not come; the newest that waits is next."""
        with self._lock:
            del self._read[message]
            if self._waiting:
                following, _ = self._waiting.popitem()
                following.since = self._clock()
                self._read[following] = None
                following.turn.set()

    def evict(self, method: str) -> bool:
        """Whether an unfinished request of ``method``, which is full, was given up, so that its thread comes free."""
        now = self._clock()
        with self._lock:
            for message in itertools.chain(self._waiting, self._read):
                if message.method == method and not message.given_up and now - message.since >= _OVERDUE_SECONDS:
                    message.given_up = True
                    break
            else:
                return False
        message.turn.set()
        message.cancel()
        return True

    def _wait(self, message: _Message) -> None:
        deadline = message.since + _LONGEST_WAIT_SECONDS
        while True:
            now = self._clock()
            with self._lock:
                if message in self._read:
                    return
                if message.given_up or now >= deadline:
                    del self._waiting[message]
                    raise Full("too many requests have begun whose messages have not come")
                stale = self._stale(now, self._patience)
                oldest = next((each.since for each in self._read if not each.given_up), now)
            if stale is not None:
                stale.cancel()
                message.turn.wait(_CANCEL_SECONDS)
            else:
                message.turn.wait(min(max(oldest + self._patience - now, 0.01), deadline - now))

    def _stale(self, now: float, seconds: float) -> _Message | None:
        """The oldest, if its message is on its way for so long; from now on it is given up. With the lock held."""
        for message in self._read:
            if not message.given_up:
                if now - message.since < seconds:
                    return None
                message.given_up = True
                return message
        return None


class Admission:
    """The calls of one method. Thread-safe."""

    def __init__(self, method: str, limit: MethodLimit, readings: Readings) -> None:
        self._method = method
        self._limit = limit
        self._readings = readings
        self._lock = threading.Lock()
        self._calls = 0
        self._of_connection: Counter[str] = Counter()
        name = "grpc-" + method.rpartition("/")[2]
        self.pool = ThreadPoolExecutor(limit.calls, thread_name_prefix=name)
        """A separate thread pool, so that calls of other methods cannot use up its threads."""

    def admit(self) -> bool:
        """Whether one more may begin; if so :meth:`release` follows."""
        with self._lock:
            if self._calls < self._limit.calls:
                self._calls += 1
                return True
        if not self._readings.evict(self._method):
            return False
        # The thread of the cancelled call becomes free soon: until then the new call waits in the pool's queue.
        with self._lock:
            self._calls += 1
        return True

    def release(self) -> None:
        with self._lock:
            self._calls -= 1

    def connect(self, peer: str) -> None:
        """One more of this connection; if it raises nothing, :meth:`disconnect` follows. Raises :class:`Full`."""
        with self._lock:
            if self._of_connection[peer] >= self._limit.per_connection:
                raise Full(f"{self._limit.per_connection} of them run already on this connection")
            self._of_connection[peer] += 1

    def disconnect(self, peer: str) -> None:
        with self._lock:
            self._of_connection[peer] -= 1
            if not self._of_connection[peer]:
                del self._of_connection[peer]

    def full(self) -> Full:
        """Why :meth:`admit` refused."""
        return Full(f"{self._limit.calls} of them run already")
