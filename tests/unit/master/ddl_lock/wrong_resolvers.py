"""Decisions about a lock taken otherwise than they should be: the walks must see what comes of each."""

from __future__ import annotations

from dataclasses import replace

from shardmerge.master.ddl_lock.resolver import Close, Execute, Release, Step, Wait, resolve
from shardmerge.master.ddl_lock.situation import Situation, Stage


def hasty(situation: Situation, now: float, generation: str) -> Step:
    """Does not wait for those that are missing."""
    step = resolve(situation, now, generation)
    lock = situation.lock
    if isinstance(step, Wait) and lock and lock.stage is Stage.GATHERING:
        return Execute(replace(lock, stage=Stage.EXECUTING))
    return step


def trusting(situation: Situation, now: float, generation: str) -> Step:
    """Releases what it has given to the owner."""
    lock = situation.lock
    if lock and lock.stage is Stage.EXECUTING:
        return Release(replace(lock, stage=Stage.RELEASED))
    return resolve(situation, now, generation)


def impatient(situation: Situation, now: float, generation: str) -> Step:
    """Closes a lock before everybody has gone on."""
    lock = situation.lock
    return Close() if lock and lock.stage is Stage.RELEASED else resolve(situation, now, generation)
