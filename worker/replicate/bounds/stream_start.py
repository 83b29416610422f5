"""Decides where the stream starts after the history was copied."""

from __future__ import annotations

from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.ddl.decide.routed_statements import first_ddl
from shardmerge.worker.relay.relay import Relay
from shardmerge.worker.rules.table_scope import TableScope
from shardmerge.worker.snapshot.handover import Handover


def stream_start(relay: Relay, scope: TableScope, begin: RelayOffset, handover: Handover) -> RelayOffset:
    """The lowest high watermark, or the first DDL statement between ``begin``, where the copy began, and it: such a
    statement creates a table, which was not copied, or alters the shadow table of an online schema change, whose swap
    comes later.

    Raises OFFSET_PURGED, RELAY_DAMAGED, RELAY_RESTARTED, and what :meth:`TableScope.holds` raises.
    """
    _, lowest = handover.lowest
    statement = first_ddl(relay.statements_from(begin), scope, lowest)
    return lowest if statement is None else statement.group_start
