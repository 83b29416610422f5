"""What of a world may be killed, how it comes back, and what must hold then (I9)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import cast

from tests.support.cluster import Json
from tests.support.daemon import Daemon
from tests.support.wait import until
from tests.support.world import World
from tests.support.writer import ORDERS, ShardTable, Writer, beside_a_writer


def _kill_worker(world: World) -> None:
    worker = world.cluster.worker_of("mysql-01")
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
    worker = world.cluster.worker_of("mysql-01")
    jvm, pid = worker.jvm_pid(), worker.pid
    os.kill(jvm, signal.SIGKILL)
    until(lambda: worker.alive and _other_jvm(worker.jvm_pid, jvm), "the worker starts a new JVM in place", 300)
    assert worker.pid == pid


def _other_jvm(jvm_pid: Callable[[], int], old: int) -> bool:
    try:
        return jvm_pid() != old
    except AssertionError:
        return False


def _kill_spark_tasks(world: World) -> None:
    for pid in world.cluster.worker_of("mysql-01").spark_task_pids():
        # An idle process ends by itself, and a busy one when another of its job is killed before it.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _kill_master(world: World) -> None:
    world.cluster.masters[0].restart()


def _kill_etcd(world: World) -> None:
    """For longer than the lease: the workers must stop their lanes, and come back."""
    world.cluster.etcd.kill()
    _until_said(world, b"lease lost", b"now=STAGE_PAUSED", "the workers stop their lanes")
    world.cluster.etcd.start()


def _lose_leases(world: World) -> None:
    """As before, but without waiting for the lanes' end: a thread of the driver that a test holds would keep it off."""
    world.cluster.etcd.kill()
    _until_said(world, b"lease lost", b"", "the workers notice that their leases are lost")
    world.cluster.etcd.start()


def _until_said(world: World, first: bytes, then: bytes, what: str) -> None:
    """By every worker since it last registered: it may have said so before anybody looks."""

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
"""By name; the worker, its processes and the source are those of the first source."""

Kills = Mapping[str, str]
"""Moments in their order, with who is killed at each.

A subtask whose tasks, source or target failed waits longer each time before it tries again; a worker or JVM that starts
anew has no such past. So a list that mixes the victims takes less time than one victim at as many moments.
"""


def at_each(victim: str, moments: Sequence[str]) -> Kills:
    """The same victim at each of the moments."""
    return dict.fromkeys(moments, victim)


def kill_while_replicating(world: World, victim: str) -> None:
    """With load on: after the kill the target equals the merge (I1)."""
    name = f"kill_{victim}"
    family = world.family(name)
    shards = family.create(300)
    with Writer(shards, seed=21) as writer:
        world.cluster.start_task(family.task())
        world.cluster.wait_replicating(name)
        writer.go_on()
        # In the middle of a transaction at the target: rows are written, nothing is committed yet.
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
"""The moments of a snapshot, in the order in which a task that is killed at each comes to them."""
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
    """At moments of one snapshot, while the applications go on writing (I1, I4, I5)."""
    name = f"snap_{label}"
    family = world.family(name)
    shards = family.create(4000)
    with Writer(shards, seed=22) as writer:
        world.cluster.hooks.hold(next(iter(kills)))
        # Always watermarks: MariaDB needs no fix-up otherwise, and comes to fewer moments.
        world.cluster.start_task(family.task(extra="snapshot: {chunk-rows: 400, threads: 2, position: watermark}\n"))
        kill_at_each(world, kills)
        world.cluster.wait_replicating(name)
        writer.go_on()
        writer.stop()
    world.judge(family)
    world.cluster.dmctl("stop-task", name)


def kill_while_joining(world: World, label: str, kills: Kills) -> None:
    """At moments of tables that join, from history to their last own event (I1, I5)."""
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
        # Its answer may be that it was not heard in time: the worker stands still.
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
"""Of a sharding DDL: a shard table comes to wait."""

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
"""From there on to the last shard table that is the lanes' own again; as they come at the owner."""


LET_GO = tuple(moment for moment in LOCKED if moment not in _OF_OWNER)
"""Those that come at the others too."""


def kill_while_locked(world: World, label: str, kills: Kills, *, owner: bool = True) -> None:
    """At moments of a sharding DDL, with load on (I1, I5, I6); nobody unlocks anything. ``owner``: whether these are
    moments of the worker that runs the statement."""
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


def _but(shards: Sequence[ShardTable], without: Sequence[ShardTable]) -> list[ShardTable]:
    return [shard for shard in shards if shard not in without]


def _give(world: World, kills: Kills, shards: Sequence[ShardTable]) -> None:
    """The statement to these tables, and the kills at the moments that follow from it."""
    if kills:
        world.cluster.hooks.hold(next(iter(kills)))
    for shard in shards:
        beside_a_writer(
            shard,
            f"ALTER TABLE {shard.name} ADD COLUMN added INT NOT NULL DEFAULT 7",
            f"UPDATE {shard.name} SET added = id % 5 WHERE id % 2 = 0",
        )
    if kills:
        kill_at_each(world, kills)


def locks_of(world: World, task: str) -> list[Json] | None:
    """As `shard-ddl-lock` lists them; None while nobody can say."""
    answer = world.cluster.dmctl("shard-ddl-lock", task, check=False)
    return cast("list[Json]", answer.json.get("locks") or []) if answer.code == 0 else None


def kill_at_each(
    world: World, kills: Kills | Sequence[tuple[str, str]], nudge: Callable[[], object] = lambda: None
) -> None:
    """The first moment is held already. The next one is before the victim is killed: nobody passes it unseen.

    ``kills``: as pairs where a moment comes several times. ``nudge``: called now and then until the moment comes.
    """
    hooks = world.cluster.hooks
    pairs = list(kills.items()) if isinstance(kills, Mapping) else list(kills)
    for (moment, victim), following in zip(pairs, (*(one for one, _ in pairs[1:]), None), strict=True):
        worker = world.cluster.worker_of("mysql-01")

        def stands(moment: str = moment, worker: Daemon = worker) -> bool:
            if hooks.standing(moment) & {one.pid for one in worker.session()}:
                return True
            nudge()
            return False

        until(stands, f"the worker of mysql-01 stands at {moment}", 300)
        if following is not None:
            hooks.hold(following)
        try:
            kill = _lose_leases if victim == "etcd" else VICTIMS[victim]
            kill(world)
        finally:
            hooks.release(moment)


ADDING = ("deferred.before_alter", "deferred.added")
"""Of the indexes that are added behind a snapshot."""


def kill_while_indexes_are_added(world: World, label: str, kills: Kills) -> None:
    """Before their ALTER and after it, with load on: the target ends with the source's indexes and rows (I1).

    A victim may also be "adder", the worker that is at it.
    """
    name = f"index_{label}"
    family = world.family(name)
    shape = replace(ORDERS, definition=ORDERS.definition + ", KEY by_state (state, amount), KEY by_note (note(9))")
    shards = family.create(12_000, shape)
    for _, server in world.sources:
        server.execute(*(f"ANALYZE TABLE {shard.name}" for shard in shards if shard.connect == server.connect))
    with Writer(shards, seed=23, shape=shape) as writer:
        for moment in kills:
            world.cluster.hooks.hold(moment)
        world.cluster.start_task(family.task())
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
