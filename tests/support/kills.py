"""Kills parts of a world, restarts them, and checks the result (I9)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import cast

from tests.support.cluster import Json
from tests.support.daemon import Daemon
from tests.support.wait import until
from tests.support.world import World
from tests.support.writer import ORDERS, ShardTable, Writer, beside_a_writer


def _kill_worker(world: World) -> None:
    _kill(world.cluster.worker_of("mysql-01"))


def _kill(worker: Daemon) -> None:
    worker.kill()
    until(lambda: not worker.session(), "JVM and Spark tasks of the killed worker end by themselves", 300)
    worker.start()


def _kill_machine(world: World) -> None:
    world.cluster.worker_of("mysql-01").restart()


def _kill_both(world: World) -> None:
    for worker in world.cluster.workers:
        worker.kill()
    for worker in world.cluster.workers:
        until(lambda worker=worker: not worker.session(), "what a killed worker has started ends by itself", 300)
        worker.start()


def _kill_jvm(world: World) -> None:
    world.cluster.worker_of("mysql-01").kill_jvm()


def _kill_spark_tasks(world: World) -> None:
    for pid in world.cluster.worker_of("mysql-01").spark_task_pids():
        # An idle process ends by itself, and a busy one ends when another process of its job is killed before it.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _kill_master(world: World) -> None:
    world.cluster.masters[0].restart()


def _kill_etcd(world: World) -> None:
    """Kill etcd for longer than the lease: the workers must stop their lanes, and reconnect."""
    world.cluster.etcd.kill()
    _until_said(world, b"lease lost", b"now=STAGE_PAUSED", "the workers stop their lanes")
    world.cluster.etcd.start()


def _lose_leases(world: World) -> None:
    """Kill etcd, but do not wait for the lanes' end: a thread of the driver that a test holds would delay it."""
    world.cluster.etcd.kill()
    _until_said(world, b"lease lost", b"", "the workers notice that their leases are lost")
    world.cluster.etcd.start()


def _until_said(world: World, first: bytes, then: bytes, what: str) -> None:
    """Wait until every worker has logged this since it last registered; it may have done so before the first look."""

    def said() -> bool:
        logs = [worker.log.read_bytes().rpartition(b"registered ")[2] for worker in world.cluster.workers]
        return all(first in text and then in text.partition(first)[2] for text in logs)

    until(said, what, 300)


def _kill_target(world: World) -> None:
    world.target.kill()
    world.target.start()


def _kill_source(world: World) -> None:
    world.sources[0][1].kill()
    world.sources[0][1].start()


VICTIMS: dict[str, Callable[[World], None]] = {
    "worker": _kill_worker,
    "both workers": _kill_both,
    "machine": _kill_machine,
    "jvm": _kill_jvm,
    "tasks": _kill_spark_tasks,
    "master": _kill_master,
    "etcd": _kill_etcd,
    "target": _kill_target,
    "source": _kill_source,
}
"""Victims by name; the worker, its processes and the source are those of the first source."""

Kills = Mapping[str, str]
"""Moments in their order, each with its victim.

After each failure of its tasks, source or target a subtask waits longer before it retries; a worker or JVM that is
started anew waits only for the shortest time. So a list that mixes the victims takes less time than one victim at as
many moments.
"""


_SENT_BETWEEN = {
    "ddl.begun": ("ddl.run",),
    "ddl.before_passing": ("ddl.passed",),
    "ddl.passing": ("ddl.passed",),
    "park_again.recording": ("park_again.recorded",),
}
"""By moment: the moments that only the run reaches that sends the statement or the COMMIT after it."""

_ENDS_THE_RUN = ("tasks", "jvm")
"""The victims whose end stops a run while its thread continues: whether the thread sends its statement before its
session is closed is a race. If it does and does not see the answer, the next run finds the statement executed."""


def _may_miss(victim: str, moment: str, following: str) -> bool:
    """Whether no run may reach ``following`` after the kill of ``victim`` at ``moment``."""
    return victim in _ENDS_THE_RUN and following in _SENT_BETWEEN.get(moment, ())


def at_each(victim: str, moments: Sequence[str]) -> Kills:
    """Return the same victim for each of the moments, except those that no run may reach after the kill before."""
    chosen: list[str] = []
    for moment in moments:
        if not (chosen and _may_miss(victim, chosen[-1], moment)):
            chosen.append(moment)
    return dict.fromkeys(chosen, victim)


def kill_while_replicating(world: World, victim: str) -> None:
    """Kill the victim under load: after the kill the target equals the merge (I1)."""
    name = f"kill_{victim}"
    family = world.family(name)
    shards = family.create(300)
    with Writer(shards, seed=21) as writer:
        world.cluster.start_task(family.task())
        world.cluster.wait_replicating(name)
        writer.go_on()
        # In the middle of a transaction at the target: rows are written, but none is committed yet.
        world.cluster.hooks.hold("lane0.before_commit")
        world.cluster.hooks.reached("lane0.before_commit")
        try:
            VICTIMS[victim](world)
        finally:
            world.cluster.hooks.release("lane0.before_commit")
        writer.go_on()
        writer.stop()
    world.judge(family)
    world.cluster.dmctl("stop-task", name)


COPYING = (
    "snapshot.planning",
    "snapshot.after_low",
    "snapshot.after_select",
    "snapshot.fixing",
    "snapshot.before_commit",
    "snapshot.after_commit",
    "handover",
)
"""The moments of a snapshot, in the order in which a task reaches them when it is killed at each."""
JOINING = (
    "update.begun",
    "join.copying",
    "snapshot.before_commit",
    "join.before_stream",
    "join.stream",
    "join.near",
    "join.before_adopting",
    "join.adopting",
    "join.adopted",
)
"""The moments of tables that join a running task."""


def kill_while_copying(world: World, label: str, kills: Kills) -> None:
    """Kill at moments of one snapshot, while the applications continue to write (I1, I4, I5)."""
    name = f"snap_{label}"
    family = world.family(name)
    shards = family.create(4000)
    with Writer(shards, seed=22) as writer:
        world.cluster.hooks.hold(next(iter(kills)))
        # Always watermarks: without this setting MariaDB needs no fix-up, and reaches fewer moments.
        world.cluster.start_task(family.task(extra="snapshot: {chunk-rows: 400, threads: 2, position: watermark}\n"))
        kill_at_each(world, kills)
        world.cluster.wait_replicating(name)
        writer.go_on()
        writer.stop()
    world.judge(family)
    world.cluster.dmctl("stop-task", name)


def kill_while_joining(world: World, label: str, kills: Kills) -> None:
    """Kill at moments of tables that join, from history to their last own event (I1, I5)."""
    name = f"join_{label}"
    family = world.family(name, tables=2)
    shards = family.create(1500)
    first = family.task(extra="snapshot: {chunk-rows: 400, threads: 2}\n")
    only = f'    do-dbs: ["{name}_*"]'
    one = first.replace(only, f'{only}\n    do-tables: [{{db-name: "{name}_*", tbl-name: "order_01"}}]')
    with Writer(shards, seed=23) as writer:
        world.cluster.start_task(one)
        world.cluster.wait_replicating(name)
        world.cluster.hooks.hold(next(iter(kills)))
        # The command may report a timeout: the worker is held.
        world.cluster.dmctl("update-task", world.cluster.write(f"{name}.update.yaml", first), check=False)
        kill_at_each(world, kills)
        world.cluster.wait_joined(name)
        writer.go_on()
        writer.stop()
    world.judge(family)
    copied = world.target.query(f"SELECT COUNT(*) FROM dm_meta.snapshot_table WHERE task = '{name}'")
    assert copied == [(4,)], "every table was copied once, by the number it first got"
    world.cluster.dmctl("stop-task", name)


PARKING = ("ddl.before_passing", "ddl.passing", "ddl.passed")
"""Moments of a sharding DDL until a shard table is parked."""

_OF_OWNER = ("lock.executing", "ddl.begun", "ddl.run", "lock.executed", "lock.told")
LOCKED = (
    *PARKING,
    *_OF_OWNER,
    "lock.before_release",
    "lock.released",
    "replay.beginning",
    "replay.begun",
    "join.near",
    "join.before_adopting",
    "join.adopting",
    "join.adopted",
)
"""All moments until the lanes apply the last shard table's rows again, in the order in which the owner reaches them."""


LET_GO = tuple(moment for moment in LOCKED if moment not in _OF_OWNER)
"""The moments that the other workers reach too."""


def kill_while_locked(world: World, label: str, kills: Kills, *, owner: bool = True) -> None:
    """Kill at moments of a sharding DDL, under load (I1, I5, I6); no lock is unlocked by a command. ``owner``: whether
    these are moments of the worker that runs the statement."""
    name = f"lock_{label}"
    family = world.family(name, tables=2)
    shards = family.create(300)
    with Writer(shards, seed=29) as writer:
        world.cluster.start_task(family.task(extra="shard-mode: pessimistic\n"))
        world.cluster.wait_replicating(name)
        here = [shard for shard in shards if shard.connect == world.sources[0][1].connect]
        parking = {moment: victim for moment, victim in kills.items() if moment in PARKING}
        locked = {moment: victim for moment, victim in kills.items() if moment not in PARKING}
        # The source whose tables came first owns the lock.
        first, last = (here, _but(shards, here)) if owner else (_but(shards, here), here)
        _give(world, parking if owner else {}, first)
        until(lambda: locks_of(world, name), "there is a lock", 300)
        _give(world, locked if owner else kills, last)
        until(lambda: locks_of(world, name) == [], "there is no lock any more", 400)
        world.cluster.wait_joined(name)
        writer.go_on()
        writer.stop()
    world.judge(family)
    world.cluster.dmctl("stop-task", name)


def kill_while_queued(world: World, label: str, kills: Kills) -> None:
    """Kill while released shard tables are parked at the statement that is queued after theirs (I1, I5, I6). Some of
    them have rows in between, and get a stream."""
    name = f"queued_{label}"
    family = world.family(name, tables=2)
    shards = family.create(100)
    world.cluster.start_task(family.task(extra="shard-mode: pessimistic\n"))
    world.cluster.wait_replicating(name)
    world.settle([name])
    world.cluster.hooks.hold(next(iter(kills)))
    for number, shard in enumerate(shards):
        beside_a_writer(
            shard,
            f"UPDATE {shard.name} SET amount = amount + 1",
            f"ALTER TABLE {shard.name} ADD COLUMN added INT NOT NULL DEFAULT 7",
            *([f"UPDATE {shard.name} SET added = 3 WHERE id % 2 = 0"] if number % 2 else []),
            f"ALTER TABLE {shard.name} ADD COLUMN further INT NOT NULL DEFAULT 8",
            f"UPDATE {shard.name} SET further = id % 5 WHERE id % 3 = 0",
        )
    kill_at_each(world, kills)
    until(lambda: locks_of(world, name) == [], "there is no lock any more", 400)
    world.cluster.wait_joined(name)
    world.judge(family)
    world.cluster.dmctl("stop-task", name)


def _but(shards: Sequence[ShardTable], without: Sequence[ShardTable]) -> list[ShardTable]:
    return [shard for shard in shards if shard not in without]


def _give(world: World, kills: Kills, shards: Sequence[ShardTable]) -> None:
    """Execute the statement on these tables, and kill at the moments that follow from it."""
    if kills:
        world.cluster.hooks.hold(next(iter(kills)))
    for shard in shards:
        beside_a_writer(
            shard,
            f"ALTER TABLE {shard.name} ADD COLUMN added INT NOT NULL DEFAULT 7",
            f"UPDATE {shard.name} SET added = id % 5 WHERE id % 2 = 0",
        )
    if kills:
        kill_at_each(world, kills, of_owner=_OF_OWNER)


def locks_of(world: World, task: str) -> list[Json] | None:
    """Return the locks as `shard-ddl-lock` lists them; None while there is no answer."""
    answer = world.cluster.dmctl("shard-ddl-lock", task, check=False)
    return cast("list[Json]", answer.json.get("locks") or []) if answer.code == 0 else None


def kill_at_each(
    world: World,
    kills: Kills | Sequence[tuple[str, str]],
    nudge: Callable[[], object] = lambda: None,
    of_owner: Collection[str] = (),
) -> None:
    """Kill at each moment; the first one is held already. The next moment is held before the victim is killed, so that
    no process goes past it unnoticed.

    ``kills``: pairs if a moment occurs several times. ``nudge``: called repeatedly until the moment is reached. The
    moments ``of_owner`` count at any worker, and the victim "worker" or "jvm" is then its: after the death of a lock's
    owner, another source runs the statement.
    """
    hooks = world.cluster.hooks
    pairs = list(kills.items()) if isinstance(kills, Mapping) else list(kills)
    for (moment, victim), (following, _) in pairwise(pairs):
        assert moment != following, f"{moment} is released after it is held again: no worker would be held there"
        assert not _may_miss(victim, moment, following), f"{victim} at {moment}: no run may reach {following}"
    for (moment, victim), following in zip(pairs, (*(one for one, _ in pairs[1:]), None), strict=True):
        by_owner = moment in of_owner

        def stands(moment: str = moment, by_owner: bool = by_owner) -> Daemon | None:
            """Return the worker that stands at the moment: any one, or the one that the first source is bound to now.

            The binding is read at each poll: a killed worker may lose its source while it starts again.
            """
            at_it = hooks.standing(moment)
            for worker in world.cluster.workers:
                stands_here = bool(at_it & {one.pid for one in worker.session()})
                if stands_here and (by_owner or world.cluster.worker_of("mysql-01") is worker):
                    return worker
            nudge()
            return None

        worker = until(stands, f"a worker stands at {moment}", 300)
        if following is not None:
            hooks.hold(following)
        try:
            if by_owner and victim == "worker":
                _kill(worker)
            elif by_owner and victim == "jvm":
                worker.kill_jvm()
            else:
                kill = _lose_leases if victim == "etcd" else VICTIMS[victim]
                kill(world)
        finally:
            hooks.release(moment)


ADDING = ("deferred.before_alter", "deferred.added")
"""Moments of the indexes that are added after a snapshot."""

DROPPING = ("deferred.existing_recorded", "deferred.existing_dropped", "snapshot.before_commit", *ADDING)
"""Moments of the indexes of an existing table, which are dropped before a snapshot and added after it."""


def kill_while_indexes_are_added(world: World, label: str, kills: Kills, *, existing: bool = False) -> None:
    """Kill before the indexes' ALTER and after it, under load: the target ends with the source's indexes and rows (I1).

    A victim may also be "adder", the worker that adds (or drops) the indexes. ``existing``: the target table exists
    beforehand, and the task drops its indexes first.
    """
    name = f"index_{label}"
    family = world.family(name)
    shape = replace(ORDERS, definition=ORDERS.definition + ", KEY by_state (state, amount), KEY by_note (note(9))")
    shards = family.create(12_000, shape)
    for _, server in world.sources:
        server.execute(*(f"ANALYZE TABLE {shard.name}" for shard in shards if shard.connect == server.connect))
    if existing:
        world.target.execute(
            f"CREATE DATABASE {name}", f"CREATE TABLE {name}.orders ({shape.definition}) CHARSET=utf8mb4"
        )
    task = family.task(extra="load: {defer-indexes: empty}\n" if existing else "")
    with Writer(shards, seed=23, shape=shape) as writer:
        for moment in kills:
            world.cluster.hooks.hold(moment)
        world.cluster.start_task(task)
        for moment, victim in kills.items():
            at_it = world.cluster.hooks.reached(moment)
            try:
                if victim == "adder":
                    for worker in [worker for worker in world.cluster.workers if worker.pid in at_it]:
                        worker.restart()
                else:
                    VICTIMS[victim](world)
            finally:
                world.cluster.hooks.release(moment)
        world.cluster.wait_replicating(name)

        def index_names() -> set[object]:
            return {row[2] for row in world.target.query(f"SHOW INDEX FROM {name}.orders")}

        def nothing_owed() -> bool:
            found = world.target.query(f"SELECT 1 FROM dm_meta.deferred_index WHERE target_schema = '{name}'")
            return not found

        until(nothing_owed, "the indexes are there")
        assert index_names() == {"PRIMARY", "by_state", "by_note"}
        writer.stop()
    world.judge(family)
    world.cluster.dmctl("stop-task", name)
