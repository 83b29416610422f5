"""Decisions about a lock taken otherwise than they should be: the walks must see what comes of each."""

from __future__ import annotations

from dataclasses import replace

from shardmerge.master.ddl_lock.resolver import Close, LetOwnerExecute, ReleaseTables, Step, Wait, resolve
from shardmerge.master.ddl_lock.situation import LockStage, Situation


def hasty(situation: Situation, now: float, generation: str) -> Step:
    """Does not wait for those that are missing."""
    step = resolve(situation, now, generation)
    lock = situation.lock
    if isinstance(step, Wait) and lock and lock.stage is LockStage.GATHERING:
        return LetOwnerExecute(replace(lock, stage=LockStage.EXECUTING))
    return step


def trusting(situation: Situation, now: float, generation: str) -> Step:
    """Releases what it has given to the owner."""
    lock = situation.lock
    if lock and lock.stage is LockStage.EXECUTING:
        return ReleaseTables(replace(lock, stage=LockStage.RELEASED))
    return resolve(situation, now, generation)


def impatient(situation: Situation, now: float, generation: str) -> Step:
    """Closes a lock before everybody has gone on."""
    lock = situation.lock
    return Close() if lock and lock.stage is LockStage.RELEASED else resolve(situation, now, generation)
