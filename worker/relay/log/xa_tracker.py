"""Tracks the XA (two-phase) transactions of a walk: which groups are prepared, and which group each end belongs to.

:class:`~shardmerge.worker.relay.log.group_walker.GroupWalker` reports the events of XA transactions and the end of each
group. The answer is a mark for the index. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.worker.binlog import query_text
from shardmerge.worker.binlog.xa_events import Xid, xid_of
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.relay.log.index_records import EntryKind
from shardmerge.worker.relay.log.prepared_groups import PreparedGroup


@dataclass(frozen=True, slots=True)
class XaStatement:
    """An XA COMMIT or ROLLBACK: it ends a group that was prepared before.

    ``kind``: COMMITTED or FORGOTTEN. ``xid``: None when the name cannot be read. ``text``: the statement.
    """

    kind: EntryKind
    xid: Xid | None
    text: bytes

    @property
    def name(self) -> str:
        return str(self.xid) if self.xid is not None else self._shown

    @property
    def _shown(self) -> str:
        return self.text.decode("utf-8", "replace")

    def after(self, position: SourcePosition) -> str:
        """The statement and the group end before it, for a message."""
        return f"{self._shown} after {position}"


def xa_statement(text: bytes) -> XaStatement | None:
    """The statement, if it is an XA COMMIT or ROLLBACK."""
    if query_text.rolls_back_xa(text):
        return XaStatement(EntryKind.FORGOTTEN, xid_of(text), text)
    if query_text.commits_xa(text):
        return XaStatement(EntryKind.COMMITTED, xid_of(text), text)
    return None


class PrepareUnknown(Exception):
    """The source sent an XA COMMIT whose PREPARE is not in the relay log; nothing of it was stored yet."""

    def __init__(self, statement: XaStatement, position: SourcePosition) -> None:
        super().__init__(statement.after(position))
        self.name = statement.name
        self.position = position


@dataclass(frozen=True, slots=True)
class GroupMark:
    """How the index marks a group that is not served unchanged.

    ``kind``: PAYLOADS, PREPARED and COMMITTED mark the group's start, FORGOTTEN marks its end. ``prepared``: the
    prepared group that the mark adds or removes (COMMITTED: none when it is not in the relay log).
    """

    kind: EntryKind
    prepared: tuple[PreparedGroup, ...] = ()


class XaTracker:
    """The prepared groups at the current point of a walk, and the role of the current group in an XA transaction.

    ``waiting``: the groups that wait for their end where the walk begins. ``lost``: names of transactions whose PREPARE
    does not exist; None: nothing is known about those that do not wait (the events are read again from disk).
    """

    def __init__(self, waiting: dict[Xid, PreparedGroup], lost: frozenset[str] | None = frozenset()) -> None:
        self._waiting = dict(waiting)
        self._lost = lost
        self._role: Xid | XaStatement | None = None  # the name that the current group prepares, or how it ends another

    @property
    def has_role(self) -> bool:
        """Whether the current group prepares or ends an XA transaction."""
        return self._role is not None

    def waiting(self) -> tuple[PreparedGroup, ...]:
        """The prepared groups that have not ended."""
        return tuple(self._waiting.values())

    def lacks(self, statement: XaStatement) -> bool:
        """Whether the PREPARE of an XA COMMIT may exist but is not in the relay log."""
        return (
            self._lost is not None
            and statement.kind is EntryKind.COMMITTED
            and statement.xid not in self._waiting
            and statement.name not in self._lost
        )

    def prepare(self, xid: Xid) -> None:
        """The current group ends with an XA PREPARE of two phases."""
        self._role = xid

    def end_other(self, statement: XaStatement) -> None:
        """The current group is an XA COMMIT or ROLLBACK."""
        self._role = statement

    def end_group(self, segment: int, start: int, end: int, whole: bool) -> GroupMark | None:
        """The current group ended; ``whole``: see PreparedGroup. None: it is no XA transaction, or rolls back a group
        that is not in the relay log."""
        role, self._role = self._role, None
        if role is None:
            return None
        if isinstance(role, Xid):
            group = PreparedGroup(role, segment, start, end, whole)
            self._waiting[role] = group
            return GroupMark(EntryKind.PREPARED, (group,))
        ended = self._waiting.pop(role.xid, None) if role.xid is not None else None
        if ended is not None:
            return GroupMark(role.kind, (ended,))
        return GroupMark(role.kind) if role.kind is EntryKind.COMMITTED else None
