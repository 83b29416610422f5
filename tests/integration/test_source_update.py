"""Tests `operate-source update`, `transfer-source`, `pause-relay` while tasks run and applications write.

Also kills at the moments of a switch to another server (I1, I9). Both flavors of source."""

from __future__ import annotations

import threading

from shardmerge.proto import errors
from tests.integration.replicated_rig import SOURCE, Replicated, codes, given_over, module_replicated, replicated
from tests.support.cluster import source_yaml
from tests.support.wait import until
from tests.support.writer import ShardTable, Writer

__all__ = ["module_replicated", "replicated"]


def test_everything_that_changes_live(replicated: Replicated) -> None:
    cluster, source = replicated.cluster, replicated.old
    family = replicated.family("live", source)
    shards = family.create(500)
    privileges = "SELECT, REPLICATION SLAVE, REPLICATION CLIENT"
    if source.flavor == "mariadb":
        privileges = "SELECT, REPLICATION SLAVE, BINLOG MONITOR"
    source.execute("CREATE USER dm@'%' IDENTIFIED BY 'first'", f"GRANT {privileges} ON *.* TO dm@'%'")
    assert replicated.update(source_yaml(SOURCE, source, "dm", "first")).code == 0
    cluster.start_task(family.task())
    cluster.wait_replicating("live")
    with Writer(shards, seed=51) as writer:
        writer.go_on()
        dumps = set(until(lambda: source.dump_threads("dm"), "the relay comes as the new user"))
        # Another password: the previous one does not work any more.
        source.execute("ALTER USER dm@'%' IDENTIFIED BY 'second'")
        wrong = replicated.update(source_yaml(SOURCE, source, "dm", "third"))
        assert codes(wrong) == [errors.master.SOURCE_CHECK_FAILED.code], wrong.text
        writer.go_on()
        right = replicated.update(source_yaml(SOURCE, source, "dm", "second"))
        assert right.code == 0, right.text
        assert "second" not in right.text
        cluster.wait_replicating("live")
        # All connections were opened anew, and later ones use the new password too.
        until(lambda: set(source.dump_threads("dm")) - dumps, "the relay comes with the new password")
        source.kill_threads("dm")
        head = replicated.relay()["relayBinlog"]
        writer.go_on()
        until(lambda: replicated.relay()["relayBinlog"] != head, "the relay log grows")
        # Another address of the same server.
        elsewhere = source_yaml(SOURCE, source, "dm", "second").replace("127.0.0.1", "localhost")
        moved = replicated.update(elsewhere)
        assert moved.code == 0, moved.text
        assert "the same server" in moved.text
        cluster.wait_replicating("live")
        writer.go_on()
        # Rules for purging, without an interruption of the task.
        epochs = [sub.raw["epoch"] for sub in cluster.subtasks("live").values()]
        purge = elsewhere + "purge: {interval: 5, remain-space: 0}\n"
        assert replicated.update(purge).code == 0
        assert [sub.raw["epoch"] for sub in cluster.subtasks("live").values()] == epochs
        assert codes(replicated.update(purge + "case-sensitive: true\n")) == [errors.master.SOURCE_UPDATE_FIXED.code]
        # The relay pauses, and continues.
        cluster.dmctl("pause-relay", "-s", SOURCE)
        assert replicated.relay()["paused"]
        head = replicated.relay()["relayBinlog"]
        writer.go_on()
        assert replicated.relay()["relayBinlog"] == head
        cluster.dmctl("resume-relay", "-s", SOURCE)
        until(lambda: replicated.relay()["relayBinlog"] != head, "it fetches again")
        # Another worker, during the writes.
        before = cluster.worker_of(SOURCE)
        other = next(one for one in cluster.workers if one is not before)
        given = cluster.dmctl("transfer-source", SOURCE, other.name)
        assert cluster.worker_of(SOURCE) is other, given.text
        cluster.wait_replicating("live")
        writer.go_on()
        # Disable the source, and enable it again.
        off = replicated.update(elsewhere + "enable: false\n")
        assert off.code == 0, off.text
        asked = cluster.dmctl("query-status", "live", check=False)
        assert str(errors.master.SOURCE_DISABLED.code) in asked.text
        writer.go_on()
        assert replicated.update(elsewhere).code == 0
        cluster.wait_replicating("live")
        writer.go_on()
        writer.stop()
    replicated.judge("live", source)
    cluster.dmctl("stop-task", "live")
    # A new address is only accepted together with a password, and root has none.
    assert replicated.update(source_yaml(SOURCE, source, "dm", "second")).code == 0
    assert replicated.update(source_yaml(SOURCE, source)).code == 0


def test_another_server_is_followed_by_gtid(replicated: Replicated) -> None:
    cluster, old, new = replicated.cluster, replicated.old, replicated.new
    family, later = replicated.family("switched", old), replicated.family("switched", new)
    shards = family.create(2000)
    cluster.hooks.hold("snapshot.before_commit")
    cluster.start_task(family.task())
    cluster.hooks.reached("snapshot.before_commit")
    replicated.servers.caught_up(new, old)
    busy = replicated.update(source_yaml(SOURCE, new))
    assert codes(busy) == [errors.relay.SWITCH_BUSY.code], busy.text
    cluster.hooks.release("snapshot.before_commit")
    cluster.wait_replicating("switched")
    with Writer(shards, seed=52) as writer:
        writer.go_on(600)
        writer.stop()
    replicated.servers.caught_up(new, old)
    replicated.servers.promote(new)
    with Writer(later.shard_tables(), seed=53) as writer:
        writer.go_on()
        told = replicated.update(source_yaml(SOURCE, new), "--dry-run")
        assert told.code == 0 and "continues by GTID" in told.text, told.text
        answer = replicated.update(source_yaml(SOURCE, new))
        assert answer.code == 0, answer.text
        cluster.wait_replicating("switched")
        writer.go_on(600)
        writer.stop()
    replicated.judge("switched", new)
    cluster.dmctl("stop-task", "switched")
    replicated.swap()


SWITCHING = ("source.checked", "source.stored", "source.released", "relay.connected")
"""The moments of a switch: of the master, then of the worker."""


def test_kill_at_every_moment_of_a_switch(replicated: Replicated) -> None:
    """After any kill the spare worker takes the source over; it has read nothing from the previous server."""
    cluster, old, new = replicated.cluster, replicated.old, replicated.new
    family, later = replicated.family("killed", old), replicated.family("killed", new)
    shards = family.create(300)
    cluster.start_task(family.task())
    cluster.wait_replicating("killed")
    with Writer(shards, seed=54) as writer:
        writer.go_on()
        writer.stop()
    replicated.servers.caught_up(new, old)
    replicated.servers.promote(new)
    hooks, master = cluster.hooks, cluster.masters[0]
    text = source_yaml(SOURCE, new)
    with Writer(later.shard_tables(), seed=55) as writer:
        for moment, kept in (("source.checked", True), ("source.stored", False)):
            hooks.hold(moment)
            if not kept:
                hooks.hold("source.released")
            thread = threading.Thread(target=replicated.update, args=(text,))
            thread.start()
            hooks.reached(moment)
            master.kill()
            hooks.release(moment)
            thread.join()
            master.start()
            cluster.wait_bound([SOURCE])
            says = replicated.update(text, "--dry-run") if kept else None
            assert says is None or [one["key"] for one in says.json["changes"]] == ["from.port"], says.text
        writer.go_on()
        hooks.reached("source.released")
        hooks.hold("relay.connected")
        first = given_over(replicated, "source.released")
        hooks.reached("relay.connected")
        second = given_over(replicated, "relay.connected")
        assert second is not first
        cluster.wait_replicating("killed")
        writer.go_on()
        third = given_over(replicated)
        assert third is not second
        unchanged = replicated.update(text)
        assert unchanged.code == 0 and not unchanged.json["changes"], unchanged.text
        cluster.wait_replicating("killed")
        writer.go_on()
        writer.stop()
    replicated.judge("killed", new)
    cluster.dmctl("stop-task", "killed")
    replicated.swap()


def _handed_over_late(replicated: Replicated, name: str) -> list[ShardTable]:
    """Start a task that has copied its tables during writes, and is paused before its lanes have applied anything;
    return its shard tables."""
    cluster, hooks = replicated.cluster, replicated.cluster.hooks
    shards = replicated.family(name, replicated.old).create(300)
    hooks.hold("snapshot.planned")
    hooks.hold("handover")
    cluster.start_task(replicated.family(name, replicated.old).task())
    hooks.reached("snapshot.planned")
    copied = f"SELECT COUNT(*) FROM dm_meta.snapshot_chunk WHERE task = '{name}' AND state = 1"
    until(lambda: replicated.target.query(copied) == [(1,)], "the first table is copied")
    with Writer(shards, seed=57) as writer:
        writer.go_on(300)
        writer.stop()
    hooks.release("snapshot.planned")
    hooks.reached("handover")
    cluster.dmctl("pause-task", name, check=False)
    hooks.release("handover")
    cluster.wait_paused(name)
    assert replicated.target.query(f"SELECT phase FROM dm_meta.subtask WHERE task = '{name}'") == [("replicate",)]
    return shards


def test_a_worker_new_to_the_source_finds_marks_of_the_server_before(replicated: Replicated) -> None:
    cluster, old, new = replicated.cluster, replicated.old, replicated.new
    _handed_over_late(replicated, "late")
    marks = "SELECT source_pos, gtid_set FROM dm_meta.snapshot_chunk WHERE task = 'late' ORDER BY source_pos"
    known = replicated.target.query(marks)
    assert len(known) > 1 and known[0] != known[-1] and all(gtids for _, gtids in known), known
    replicated.servers.caught_up(new, old)
    replicated.servers.promote(new)
    # The state that an earlier version has left: only the files of the previous server define the chunks' positions.
    replicated.target.execute("UPDATE dm_meta.snapshot_chunk SET gtid_set = '' WHERE task = 'late'")
    refused = replicated.update(source_yaml(SOURCE, new))
    assert codes(refused) == [errors.relay.SWITCH_BUSY.code], refused.text
    for pos, gtids in known:
        replicated.target.execute(
            f"UPDATE dm_meta.snapshot_chunk SET gtid_set = '{gtids}' WHERE task = 'late' AND source_pos = {pos}"
        )
    answer = replicated.update(source_yaml(SOURCE, new))
    assert answer.code == 0, answer.text
    before = cluster.worker_of(SOURCE)
    other = next(worker for worker in cluster.workers if worker is not before)
    cluster.dmctl("transfer-source", SOURCE, other.name)
    passed = "SELECT shard FROM dm_meta.snapshot_passed WHERE task = 'late'"
    assert replicated.target.query(passed) == []
    cluster.dmctl("resume-task", "late")
    cluster.wait_replicating("late")
    with Writer(replicated.family("late", new).shard_tables(), seed=58) as writer:
        writer.go_on(300)
        writer.stop()
    until(lambda: len(replicated.target.query(passed)) == 2, "the lanes have passed all marks")
    replicated.judge("late", new)
    cluster.dmctl("stop-task", "late")
    replicated.swap()
