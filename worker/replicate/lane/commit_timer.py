"""Decides when a lane commits what it has applied since its last commit. Pure."""

from __future__ import annotations

_CHECKPOINT_SECONDS = 1.0


class CommitTimer:
    """When the next commit of one lane is due; times are those of time.monotonic().

    ``most_rows``, ``most_bytes``: a batch of that size is committed at once. ``now``: the lane begins.
    """

    def __init__(self, most_rows: int, most_bytes: int, now: float) -> None:
        self._most_rows = most_rows
        self._most_bytes = most_bytes
        self._committed_at = now
        self.eager_at = now
        """Before this time, dry input alone is no reason to commit.

        An empty queue is not yet dry input: on a busy machine the feeder delivers each block slightly too late, and a
        lane that commits each block alone falls behind for ever. So the lane gathers for as long as its last commit
        took.
        """

    def is_due(self, now: float, rows: int, size: int, *, dry: bool) -> bool:
        """Whether ``rows`` rows with ``size`` bytes have to be committed; ``dry``: no further input waits."""
        return (
            (dry and now >= self.eager_at)
            # A row may be followed by hours of backlog for other lanes: it must not wait for that.
            or now - self._committed_at >= _CHECKPOINT_SECONDS
            or rows >= self._most_rows
            or size >= self._most_bytes
        )

    def is_move_due(self, now: float) -> bool:
        """Whether the checkpoint has to be moved although there are no rows: a restart must not read hours again."""
        return now - self._committed_at >= _CHECKPOINT_SECONDS

    def committed(self, began_at: float, now: float) -> None:
        """A commit has ended that began at ``began_at``."""
        self._committed_at = now
        self.eager_at = now + min(now - began_at, _CHECKPOINT_SECONDS)
