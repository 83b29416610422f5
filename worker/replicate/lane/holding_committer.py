"""Commits a lane's transactions when rows are held, may be held, or were given up: the quarantine.

refused row ── found by dividing the batch ── named in the error, or held from here on in the same transaction
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pymysql

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.batch import KeyState, RowOperation, diverged
from shardmerge.worker.core.mysql.connection import Session, send
from shardmerge.worker.replicate.lane.committer import STATEMENT_BYTES, Committer, RollBack, TransactionWork
from shardmerge.worker.target.apply.affected_rows import RowRefused
from shardmerge.worker.target.apply.row_bisect import Group, RefusedRow, find_refused_rows
from shardmerge.worker.target.apply.row_lookup import find_existing
from shardmerge.worker.target.apply.target_session import ApplySettings, TargetSession
from shardmerge.worker.target.apply.upserts import as_plain, resolve_upserts
from shardmerge.worker.target.members.target_members import read_target_members
from shardmerge.worker.target.quarantine import held_store
from shardmerge.worker.target.quarantine import skipped_store as skipped_records
from shardmerge.worker.target.quarantine.held_changes import (
    DROPPED,
    AbsentRows,
    HeldChange,
    HeldKey,
    held_change,
    held_key,
    skip_marker,
    split_held,
    touches_held,
)
from shardmerge.worker.target.quarantine.held_store import Reason
from shardmerge.worker.target.quarantine.skipped_events import SkippedRow
from shardmerge.worker.target.records.checkpoint import Checkpoint

log = get_logger()

MOST_HELD = 10_000
"""Most keys of one subtask that may be held: every lane has them in memory, and more keys have one common cause."""
_ROW_ERRORS = (errors.replicate.COLLISION, errors.replicate.DIVERGED)
_MOST_SEARCHES = 3  # for the refused row: another writer may have corrected the target meanwhile


class _Released(RollBack):
    """Keys that the lane treated as held, or as given up, are no longer so."""

    def __init__(self, keys: frozenset[HeldKey]) -> None:
        super().__init__(keys)
        self.keys = keys


class HoldingCommitter:
    """For one lane; ``committer`` commits what is not held. Not shared between threads."""

    def __init__(self, settings: ApplySettings, target: TargetSession, lane: int, committer: Committer) -> None:
        self._settings = settings
        self._target = target
        self._lane = lane
        self._committer = committer
        self._held: frozenset[HeldKey] = frozenset()
        self._absent = AbsentRows()
        self._released: frozenset[HeldKey] = frozenset()
        self.held_keys = 0
        """How many keys this lane has begun to hold."""

    def read(self) -> None:
        """Read which keys of the whole subtask are held. Raises ``pymysql.MySQLError``."""
        found = held_store.read_keys(self._target.connected(), self._settings.who)
        self._held, self._absent = found.held, AbsentRows(found.absent)

    @property
    def holds(self) -> bool:
        """Whether rows are, or may be, held: then a batch has to distinguish keys by shard table."""
        return self._settings.quarantine or bool(self._held or self._absent.keys)

    def absent(self, groups: Sequence[Group], skipped: Sequence[SkippedRow]) -> Mapping[HeldKey, KeyState]:
        """Of ``groups``, the changes of rows that the target lacks because they were given up."""
        return self._absent.touched(groups, skipped)

    def records(self, skipped: Sequence[SkippedRow]) -> Sequence[bytes]:
        """Statements that record the skipped rows, and the rows that the target lacks because of them."""
        if not skipped:
            return ()
        absent = self._absent.after_skips(skipped)
        who = self._settings.who
        news = {change.at: change for row in skipped if row.added_key for change in (skip_marker(row),)}
        gone = [held_store.delete_marker_statement(who, key) for key in self._absent.keys - absent.keys - self._held]
        come = absent.keys - self._absent.keys - self._held
        return (
            *skipped_records.insert_statements(who, self._lane, skipped),
            *gone,
            *held_store.marker_statements(who, (news[key] for key in come)),
        )

    def committed(self, skipped: Sequence[SkippedRow]) -> None:
        """A transaction was committed in which these rows were skipped."""
        self._absent = AbsentRows(self._absent.after_skips(skipped).keys - self._held - self._released)
        self._released = frozenset()

    def commit(self, work: TransactionWork, following: Checkpoint) -> float:
        """See :meth:`Committer.commit`; if a row is refused, it is found, and named in the error or held. Raises
        QUARANTINE_FULL."""
        refused: dict[HeldKey, RefusedRow] = {}
        searches = 0
        if work.absent and not self._settings.quarantine:
            found = held_store.read_keys(self._target.connected(), self._settings.who)
            work = self._without_released(work, self._absent.keys - found.absent - found.held)
            for key, state in work.absent.items():
                raise diverged(state.plan, 1, key.key, state.position)
        while True:
            held = self._held | refused.keys() | work.absent.keys()
            try:
                if touches_held(work.groups, held):
                    return self._committer.exactly(partial(self._commit_holding, work, refused, following))
                return self._committer.exactly(partial(self._committer.commit, work, following))
            except _Released as released:
                work = self._without_released(work, released.keys)
                continue
            except RowRefused as refusal:
                error: Exception = refusal.error
            except ShardmergeError as coded_error:
                if not self._settings.quarantine or coded_error.spec not in _ROW_ERRORS:
                    raise
                error = coded_error
            rest, _ = split_held(work.groups, held)
            rows = self._find_refused_rows(rest, work.unkeyed)
            if rows and not self._settings.quarantine:
                raise self._with_owner(rows[0]) from error
            searches += not rows
            if searches == _MOST_SEARCHES:
                raise error
            refused.update((held_key(one.key, one.state), one) for one in rows)

    def _with_owner(self, refused: RefusedRow) -> ShardmergeError:
        """The error of a row; if another row has its value of a unique key, with what is known of that row."""
        error = refused.error
        if error.spec is not errors.replicate.TARGET_DUPLICATE_OTHER_KEY:
            return error
        try:
            members = read_target_members(self._target.connected(), self._settings.who, is_executor=True)
        except (pymysql.MySQLError, ShardmergeError):
            return error  # which matters more than a name in its text
        target, merged_id = refused.state.plan.target, error.values.get("id", "")
        owner = members.owner_of(target, int(merged_id)) if merged_id else None
        if owner is not None:
            known = f", of {owner.table.full_name} of source {owner.source}"
        elif members.is_only_table(target):
            known = "; no other shard table is merged into this target table"
        else:
            return error
        return error.spec(**{**error.values, "reason": f"{error.values['reason']}{known}"})

    def _without_released(self, work: TransactionWork, released: frozenset[HeldKey]) -> TransactionWork:
        self._held -= released
        self._released |= released
        return replace(work, absent={key: state for key, state in work.absent.items() if key not in released})

    def _find_refused_rows(self, groups: Sequence[Group], unkeyed: Sequence[RowOperation]) -> list[RefusedRow]:
        safe_mode = self._settings.safe_mode
        return find_refused_rows(self._target.connected(), groups, unkeyed, STATEMENT_BYTES, safe_mode=safe_mode)

    def _commit_holding(
        self, work: TransactionWork, refused: Mapping[HeldKey, RefusedRow], following: Checkpoint
    ) -> float:
        """Commit what is not held, and record what is. Also raises _Released."""
        settings = self._settings
        with self._committer.transaction(following) as session:
            waits = self._held | refused.keys() | work.absent.keys()
            rest, waiting = split_held(self._plain_held_changes(session, work.groups, waits), waits)
            rest = resolve_upserts(session, rest)
            for record in work.records:
                send(session, record)
            # Under the checkpoint's lock: no other session applies held changes meanwhile.
            last = held_store.last_seqs(session, settings.who, (change.at for change in waiting))
            self._check_held(waiting, last, refused)
            self._committer.write(session, rest, work.unkeyed)
            reasons = {key: Reason.of(one.error, one.errno) for key, one in refused.items()}
            held = [change for change in waiting if change.operation != DROPPED]
            for record in held_store.insert_statements(
                settings.who, held, last, reasons, following.relay_id, following.offset
            ):
                send(session, record)
        self._log_held(refused)
        self._held |= {change.at for change in held}
        return time.time()

    def _plain_held_changes(
        self, session: Session, groups: Sequence[Group], held: frozenset[HeldKey]
    ) -> tuple[Group, ...]:
        """Replace changes of ``held`` keys in tables that may lack rows by plain ones, by whether the row exists: after
        the changes that are already held, else at the target."""
        unsure = [
            (held_key(key, state), key, state)
            for _, keys in groups
            for key, state in keys.items()
            if state.plan.may_lack_rows and held_key(key, state) in held
        ]
        if not unsure:
            return tuple(groups)
        last = held_store.last_images(session, self._settings.who, (at for at, _, _ in unsure))
        plain: dict[HeldKey, KeyState | None] = {}
        for at, key, state in unsure:
            if state.existence_unknown:
                there = last[at] if at in last else bool(find_existing(session, state.plan, (key,)))
                plain[at] = as_plain(state, there=there)
            elif not state.existed and last.get(at, False):
                # The deletion of the held row was skipped: the shard table's own row is replaced.
                plain[at] = as_plain(state, there=True)
        left: list[Group] = []
        for name, keys in groups:
            now = {key: plain.get(held_key(key, state), state) for key, state in keys.items()}
            left.append((name, {key: state for key, state in now.items() if state is not None}))
        return tuple((name, keys) for name, keys in left if keys)

    def _check_held(
        self, waiting: Sequence[HeldChange], last: Mapping[HeldKey, int], refused: Mapping[HeldKey, RefusedRow]
    ) -> None:
        """Check that the changes in ``waiting`` must and may be held: raises _Released, QUARANTINE_FULL."""
        released = {change.at for change in waiting} - last.keys() - refused.keys()
        if released:
            raise _Released(frozenset(released))
        count = len(self._held | refused.keys())
        if not refused or count <= MOST_HELD:
            return
        key, one = list(refused.items())[-1]
        change = next(change for change in waiting if change.at == key)
        raise errors.replicate.QUARANTINE_FULL(
            source=self._settings.source,
            task=self._settings.task,
            count=count,
            limit=MOST_HELD,
            schema=change.source_schema,
            table=change.source_table,
            position=change.position,
            reason=one.error.message,
        )

    def _log_held(self, refused: Mapping[HeldKey, RefusedRow]) -> None:
        self.held_keys += len(refused)
        for key, one in refused.items():
            log.warning(
                "key held in quarantine",
                task=self._settings.task,
                source=self._settings.source,
                lane=self._lane,
                target=key.target.quoted,
                key=held_change(one.key, one.state).key_text,
                error=str(one.error),
            )
