"""Operates on held changes for an operator: lists them, applies them again, gives them up.

Everything happens at the target, in one transaction that holds the locks of all of the subtask's checkpoints: no lane
commits meanwhile, and each lane reads under its own lock what is still held. So it does not matter whether lanes run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shardmerge.proto import failpoints
from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.mysql.connection import Session, execute
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.target.apply.row_bisect import refused_rows_in
from shardmerge.worker.target.quarantine import held_store, skipped_store
from shardmerge.worker.target.quarantine.held_changes import (
    DROPPED,
    HeldChange,
    HeldKey,
    drop_marker,
    group_by_target,
    held_key,
    minimal_plan,
    net_change,
)
from shardmerge.worker.target.quarantine.held_store import HeldRecord, Reason
from shardmerge.worker.target.quarantine.skipped_events import SkippedRow

_STATEMENT_BYTES = 1 << 20
_LISTED = 1000
_SAVED = "before_the_retry"
BY_DROP = "quarantine drop"

Chains = dict[HeldKey, list[HeldRecord]]


@dataclass(frozen=True, slots=True)
class KeySelection:
    """Selects held keys. ``table``: the target's, as schema.table; ``key``: as it is listed, or only its values; "" for
    all."""

    table: str = ""
    key: str = ""

    def matches(self, change: HeldChange) -> bool:
        target = change.at.target
        if self.table and self.table != f"{target.schema}.{target.table}":
            return False
        return not self.key or self.key in (change.key_text, change.at.key.decode("utf-8", "backslashreplace"))


def list_held(session: Session, who: SubtaskKey, choice: KeySelection) -> pb.WorkerQuarantineResponse:
    """The keys, the longest held first, at most a thousand."""
    return _answer(who, _chosen(held_store.read_chains(session, who, lock=False), choice), {})


def retry(session: Session, who: SubtaskKey, choice: KeySelection, *, safe_mode: bool) -> pb.WorkerQuarantineResponse:
    """Apply each key's held changes, all keys in one transaction; what is refused again stays, with its new reason.

    Raises QUARANTINE_BROKEN, ``pymysql.MySQLError``: nothing has changed then.
    """
    execute(session, "START TRANSACTION")
    held_store.lock_lanes(session, who)
    chains = _chosen(held_store.read_chains(session, who, lock=True), choice)
    nets = {key: net_change([record.change for record in chain]) for key, chain in chains.items()}
    refused: dict[HeldKey, Reason] = {}
    while True:
        execute(session, f"SAVEPOINT {_SAVED}")
        groups = group_by_target(net for key, net in nets.items() if key not in refused)
        culprits = refused_rows_in(session, groups, (), _STATEMENT_BYTES, safe_mode=safe_mode)
        if not culprits:
            break
        # A refused row may have caused another's refusal, or hidden it: try all remaining ones once more.
        execute(session, f"ROLLBACK TO {_SAVED}")
        refused.update((held_key(one.key, one.state), Reason.of(one.error, one.errno)) for one in culprits)
    done = [key for key in chains if key not in refused]
    held_store.remove(session, who, done)
    held_store.update_reasons(session, who, refused)
    failpoints.hit("quarantine.before_commit")
    execute(session, "COMMIT")
    failpoints.hit("quarantine.committed")
    answer = _answer(who, {key: chain for key, chain in chains.items() if key in refused}, refused)
    answer.done_keys = len(done)
    answer.done_changes = sum(len(chains[key]) for key in done)
    return answer


def drop(session: Session, who: SubtaskKey, choice: KeySelection) -> pb.WorkerQuarantineResponse:
    """Give up the keys' held changes, in one transaction with the record of them. Raises ``pymysql.MySQLError``."""
    execute(session, "START TRANSACTION")
    held_store.lock_lanes(session, who)
    chains = _chosen(held_store.read_chains(session, who, lock=True), choice)
    waiting = [record.change for chain in chains.values() for record in chain if record.change.operation != DROPPED]
    rows = [_skipped(change, who) for change in waiting]
    for statement in skipped_store.insert_statements(who, 0, rows, BY_DROP):
        execute(session, statement.decode())
    held_store.remove(session, who, chains)
    left = (drop_marker([record.change for record in chain]) for chain in chains.values())
    for statement in held_store.marker_statements(who, (change for change in left if change is not None)):
        execute(session, statement.decode())
    failpoints.hit("quarantine.before_commit")
    execute(session, "COMMIT")
    return pb.WorkerQuarantineResponse(done_keys=len(chains), done_changes=len(rows))


def _chosen(chains: Chains, choice: KeySelection) -> Chains:
    return {key: chain for key, chain in chains.items() if choice.matches(chain[0].change)}


def _skipped(change: HeldChange, who: SubtaskKey) -> SkippedRow:
    _, _, source = who
    key = change.key_text
    columns = ", ".join(f"`{name}`" for name in change.columns)
    image = change.image.decode("utf-8", "backslashreplace") if change.image is not None else ""
    after = f"({columns}) = ({image})" if image else ""
    before = key if change.existed else ""
    return SkippedRow(minimal_plan(change, source), change.operation, before, after, "", change.position)


def _answer(
    who: SubtaskKey, chains: Mapping[HeldKey, Iterable[HeldRecord]], reasons: Mapping[HeldKey, Reason]
) -> pb.WorkerQuarantineResponse:
    _, _, source = who
    answer = pb.WorkerQuarantineResponse(total_keys=len(chains))
    for key, chain in list(chains.items())[:_LISTED]:
        first, *others = [record for record in chain if record.change.operation != DROPPED]
        reason = reasons.get(key, first.reason)
        change = first.change
        answer.keys.add(
            source=source,
            source_table=f"{change.source_schema}.{change.source_table}",
            target_table=f"{key.target.schema}.{key.target.table}",
            key=change.key_text,
            changes=1 + len(others),
            operation=change.operation,
            binlog_pos=f"{change.position.file}:{change.position.pos}",
            code=reason.code,
            errno=reason.errno,
            reason=reason.text,
            since=first.held_at,
        )
    return answer
