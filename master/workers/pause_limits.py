"""How long tasks or relays may stay paused, as their workers foresee it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardmerge.master.state import State
from shardmerge.master.workers.client import Workers
from shardmerge.proto import worker_pb2 as worker
from shardmerge.proto.errors import ShardmergeError

_NO_WORKER = "no live worker has the source"
_EARLIER = "its worker does not measure it: it is of an earlier version"


def pause_limits(
    sources: Sequence[str],
    read: Callable[[], State],
    workers: Workers,
    pick: Callable[[worker.RelayStatus], worker.PauseLimit],
) -> list[worker.PauseLimit]:
    """One for each source; ``pick``: the one of the task or of the relay. Raises no catalogue error: the pause itself
    has succeeded."""
    if not sources:
        return []
    try:
        state = read()
    except ShardmergeError as error:
        return [_unknown(source, str(error)) for source in sources]
    return workers.for_each(sources, lambda source: _one(source, state, workers, pick))


def _one(
    source: str, state: State, workers: Workers, pick: Callable[[worker.RelayStatus], worker.PauseLimit]
) -> worker.PauseLimit:
    holder = state.worker_of(source)
    if holder is None:
        return _unknown(source, _NO_WORKER)
    try:
        found = pick(workers.status(holder).relay)
    except ShardmergeError as error:
        return _unknown(source, str(error))
    return found if found.source else _unknown(source, _EARLIER)


def _unknown(source: str, why: str) -> worker.PauseLimit:
    return worker.PauseLimit(source=source, unknown=why, text=f"how long the pause may last is not known: {why}")
