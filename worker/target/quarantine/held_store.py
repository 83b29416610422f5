"""Stores held changes at the target.

    held_change   one row per held key and batch, `seq` in the order in which they are to be applied; with `seq` 0 a
                  marker that the key's row was dropped (`dropped`)

A lane writes them in the transaction that moves its checkpoint after them. They are deleted in the transaction that
applies or drops them (worker/daemon/commands/quarantine.py). A writer holds the lock of a checkpoint that no lane can
move meanwhile: a lane its own, the command those of all lanes. So a lane that reads them after it got that lock reads
the final state.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Session, quote_name, quote_text
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stream import Stream
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.target.quarantine.held_changes import DROPPED, HeldChange, HeldKey
from shardmerge.worker.target.records import subtask_rows

NAME = "held_change"

_MOST_DIGESTS = 500
_REASON_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the target refused a change; ``errno`` 0: a row was missing."""

    code: int
    errno: int
    text: str

    @staticmethod
    def of(error: ShardmergeError, errno: int) -> Reason:
        return Reason(error.code, errno, error.message[:_REASON_CHARACTERS])


FOLLOWS_HELD = Reason(0, 0, "")
"""Reason of a change that is held only because an earlier change of its key is held."""


@dataclass(frozen=True, slots=True)
class HeldRecord:
    """A held change as it is recorded. ``held_at``: Unix seconds."""

    change: HeldChange
    seq: int
    reason: Reason
    held_at: float


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """``held``: keys with held changes. ``absent``: keys without held changes whose rows were dropped."""

    held: frozenset[HeldKey]
    absent: frozenset[HeldKey]


def read_keys(session: Session, who: SubtaskKey) -> KnownKeys:
    """The keys that are held, and those whose rows were dropped."""
    schema, task, source = who
    with session.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT `target_schema`, `target_table`, `shard`, `key_value`, `operation` = %s "
            f"FROM {quote_name(schema)}.`{NAME}` WHERE `task` = %s AND `source` = %s",
            (DROPPED, task, source),
        )
        found = [
            (HeldKey(TargetTable(str(target), str(table)), int(shard), _bytes(key)), bool(is_dropped))
            for target, table, shard, key, is_dropped in cursor.fetchall()
        ]
    held = frozenset(key for key, is_dropped in found if not is_dropped)
    return KnownKeys(held, frozenset(key for key, _ in found) - held)


def count_keys(session: Session, who: SubtaskKey, shards: Iterable[int] = ()) -> int:
    """The number of held keys, of all shard tables or of those numbered in ``shards``."""
    of_shards = f" AND `shard` IN ({', '.join(map(str, shards))})" if shards else ""
    more = f"AND `operation` <> %s{of_shards}"
    [(count,)] = subtask_rows.select(session, who, NAME, "COUNT(DISTINCT `digest`)", more, (DROPPED,))
    return int(count)


def last_seqs(session: Session, who: SubtaskKey, keys: Iterable[HeldKey]) -> dict[HeldKey, int]:
    """The last `seq` of those of ``keys`` that are held, read under row locks; inside the caller's transaction, which
    holds a checkpoint's lock."""
    return {key: seq for key, (seq, _) in _last(session, who, keys).items()}


def last_images(session: Session, who: SubtaskKey, keys: Iterable[HeldKey]) -> dict[HeldKey, bool]:
    """For those of ``keys`` that are held: whether the target has a row after the last held change; inside the caller's
    transaction, which holds a checkpoint's lock."""
    return {key: is_there for key, (_, is_there) in _last(session, who, keys).items()}


def _last(session: Session, who: SubtaskKey, keys: Iterable[HeldKey]) -> dict[HeldKey, tuple[int, bool]]:
    """For the last held change of each key: its `seq`, and whether a row exists after it."""
    schema, task, source = who
    by_digest = {key.digest: key for key in keys}
    left = iter(by_digest)
    found: dict[HeldKey, tuple[int, bool]] = {}
    while part := list(islice(left, _MOST_DIGESTS)):
        with session.cursor() as cursor:
            cursor.execute(
                f"SELECT `digest`, `seq`, `image` IS NOT NULL FROM {quote_name(schema)}.`{NAME}` "
                f"WHERE `task` = %s AND `source` = %s AND `digest` IN ({', '.join(['%s'] * len(part))}) FOR UPDATE",
                (task, source, *part),
            )
            for digest, seq, is_there in cursor.fetchall():
                key = by_digest[str(digest)]
                found[key] = max(found.get(key, (0, False)), (int(seq), bool(is_there)))
    return found


def insert_statements(
    who: SubtaskKey,
    changes: Sequence[HeldChange],
    last: Mapping[HeldKey, int],
    reasons: Mapping[HeldKey, Reason],
    relay_id: str,
    offset: RelayOffset,
) -> Iterator[bytes]:
    """The INSERTs of newly held changes, after those that are held already. ``offset``: the lane's relay offset after
    them."""
    schema, task, source = who
    for change in changes:
        at, reason = change.at, reasons.get(change.at, FOLLOWS_HELD)
        texts = (
            at.target.schema,
            at.target.table,
            change.source_schema,
            change.source_table,
            json.dumps(change.key_columns),
            json.dumps(change.columns),
        )
        target, table, source_schema, source_table, key_columns, columns = map(quote_text, texts)
        values = (
            quote_text(task),
            quote_text(source),
            quote_text(at.digest),
            str(last.get(at, 0) + 1),
            target,
            table,
            str(at.shard),
            source_schema,
            source_table,
            key_columns,
            _literal(at.key),
            columns,
            quote_text(change.operation),
            _literal(change.image),
            quote_text(change.position.file),
            str(change.position.pos),
            quote_text(relay_id),
            str(offset.segment),
            str(offset.byte),
            str(reason.code),
            str(reason.errno),
            quote_text(reason.text),
            repr(time.time()),
        )
        yield f"INSERT INTO {quote_name(schema)}.`{NAME}` VALUES ({', '.join(values)})".encode()


def marker_statements(who: SubtaskKey, changes: Iterable[HeldChange]) -> Iterator[bytes]:
    """The INSERTs of markers for dropped rows: before all changes that may be held for their keys."""
    absent = tuple(changes)
    return insert_statements(who, absent, {change.at: -1 for change in absent}, {}, "", RelayOffset(0, 0))


def read_chains(session: Session, who: SubtaskKey, *, lock: bool) -> dict[HeldKey, list[HeldRecord]]:
    """Every held key's changes in their order; keys that were refused first come first. ``lock``: read under row locks,
    inside the caller's transaction."""
    columns = (
        "`target_schema`, `target_table`, `shard`, `key_value`, `table_schema`, `table_name`, `key_columns`, "
        "`columns`, `operation`, `image`, `source_file`, `source_pos`, `seq`, `code`, `errno`, `reason`, `held_at`"
    )
    more = "ORDER BY `digest`, `seq` FOR UPDATE" if lock else "ORDER BY `digest`, `seq`"
    chains: dict[HeldKey, list[HeldRecord]] = {}
    for row in subtask_rows.select(session, who, NAME, columns, more):
        record = _record(row)
        chains.setdefault(record.change.at, []).append(record)
    # A key without a held change is not held.
    held = {key: chain for key, chain in chains.items() if chain[-1].change.operation != DROPPED}
    return dict(sorted(held.items(), key=lambda item: item[1][0].held_at))


def _record(row: Sequence[object]) -> HeldRecord:
    target, table, shard, key, source_schema, source_table, key_columns, columns, operation, image = row[:10]
    file, pos, seq, code, errno, reason, held_at = row[10:]
    change = HeldChange(
        HeldKey(TargetTable(str(target), str(table)), int(str(shard)), _bytes(key)),
        str(source_schema),
        str(source_table),
        tuple(json.loads(str(key_columns))),
        tuple(json.loads(str(columns))),
        operation in ("update", "delete"),
        None if image is None else _bytes(image),
        SourcePosition(str(file), int(str(pos))),
    )
    why = Reason(int(str(code)), int(str(errno)), str(reason))
    return HeldRecord(change, int(str(seq)), why, float(str(held_at)))


def remove(session: Session, who: SubtaskKey, keys: Iterable[HeldKey]) -> None:
    """Inside the caller's transaction."""
    for key in keys:
        subtask_rows.delete(session, who, NAME, "AND `digest` = %s", (key.digest,))


def delete_marker_statement(who: SubtaskKey, key: HeldKey) -> bytes:
    """Deletes the marker of a dropped row that the source no longer has."""
    schema, task, source = who
    return (
        f"DELETE FROM {quote_name(schema)}.`{NAME}` WHERE `task` = {quote_text(task)} "
        f"AND `source` = {quote_text(source)} AND `digest` = {quote_text(key.digest)} "
        f"AND `operation` = {quote_text(DROPPED)}"
    ).encode()


def update_reasons(session: Session, who: SubtaskKey, reasons: Mapping[HeldKey, Reason]) -> None:
    """Record the current reasons why keys are held; inside the caller's transaction."""
    schema, task, source = who
    with session.cursor() as cursor:
        for key, reason in reasons.items():
            cursor.execute(
                f"UPDATE {quote_name(schema)}.`{NAME}` SET `code` = %s, `errno` = %s, `reason` = %s "
                "WHERE `task` = %s AND `source` = %s AND `digest` = %s ORDER BY `seq` LIMIT 1",
                (reason.code, reason.errno, reason.text, task, source, key.digest),
            )


def lock_lanes(session: Session, who: SubtaskKey) -> None:
    """Block commits of all lanes of the subtask until the caller's transaction ends."""
    for stream in Stream:
        subtask_rows.select(session, who, stream.table, "`lane`", "ORDER BY `lane` FOR UPDATE")


def _literal(value: bytes | None) -> str:
    return "NULL" if value is None else f"X'{value.hex()}'"


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
