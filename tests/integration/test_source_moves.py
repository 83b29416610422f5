"""Tests changes of a source during a snapshot, and pauses of its relay over restarts (I1, I5, I9).

The tests hold the moments, so that chunks are certainly being read. Both flavors of source.
"""

from __future__ import annotations

from shardmerge.proto import errors
from tests.integration.replicated_rig import SOURCE, Replicated, codes, given_over, module_replicated, replicated
from tests.support.cluster import source_yaml
from tests.support.wait import until
from tests.support.writer import Writer

__all__ = ["module_replicated", "replicated"]

CHUNKS = "snapshot: {chunk-rows: 200, threads: 2, position: %s}\n"
LOADED = "SELECT COUNT(*) FROM dm_meta.snapshot_chunk WHERE task = '%s' AND state = 1"


def _loaded(replicated: Replicated, name: str) -> int:
    [(count,)] = replicated.target.query(LOADED % name)
    return int(str(count))


def _begin(replicated: Replicated, name: str, position: str, moment: str) -> Writer:
    """Start a task whose readers are held at ``moment`` with some chunks loaded and more to come, and a parallel
    writer."""
    cluster = replicated.cluster
    family = replicated.family(name, replicated.old)
    shards = family.create(2000)
    cluster.hooks.hold("snapshot.planned")
    cluster.start_task(family.task(extra=CHUNKS % position))
    cluster.hooks.reached("snapshot.planned")
    until(lambda: _loaded(replicated, name), "the first chunk is loaded")
    cluster.hooks.hold(moment)
    cluster.hooks.release("snapshot.planned")
    cluster.hooks.reached(moment)
    return Writer(shards, seed=61)


def test_another_worker_takes_a_source_over_in_the_middle_of_a_snapshot(replicated: Replicated) -> None:
    """The readers of the previous worker have read their chunks: their later reports are refused (I3)."""
    cluster, hooks, moment = replicated.cluster, replicated.cluster.hooks, "snapshot.after_select"
    with _begin(replicated, "moved", "watermark", moment) as writer:
        writer.go_on()
        zombies = hooks.standing(moment)
        loaded = _loaded(replicated, "moved")
        before = cluster.worker_of(SOURCE)
        other = next(one for one in cluster.workers if one is not before)
        cluster.dmctl("transfer-source", SOURCE, other.name)
        assert cluster.worker_of(SOURCE) is other
        left = cluster.directory / f"{before.name}-relay" / SOURCE
        assert left.exists(), "nobody knows what the task needs while it copies"
        until(lambda: hooks.standing(moment) - zombies, "readers of the other worker have come as far", 300)
        writer.go_on()
        assert _loaded(replicated, "moved") == loaded
        hooks.release(moment)
        cluster.wait_replicating("moved")
        writer.go_on()
        until(lambda: not left.exists(), "the worker before removes its relay log")
        assert (cluster.directory / f"{other.name}-relay" / SOURCE / "relay.json").exists()
        writer.go_on()
        writer.stop()
    replicated.judge("moved", replicated.old)
    cluster.dmctl("stop-task", "moved")


def test_another_login_in_the_middle_of_a_snapshot(replicated: Replicated) -> None:
    """The password changes and every connection with the previous one is closed while chunks are read."""
    cluster, source, moment = replicated.cluster, replicated.old, "snapshot.after_select"
    granted = "SELECT, REPLICATION SLAVE, " + ("BINLOG MONITOR" if source.flavor == "mariadb" else "REPLICATION CLIENT")
    source.execute("CREATE USER copier@'%' IDENTIFIED BY 'first'", f"GRANT {granted} ON *.* TO copier@'%'")
    first = replicated.update(source_yaml(SOURCE, source, "copier", "first"))
    assert first.code == 0, first.text
    with _begin(replicated, "login", "watermark", moment) as writer:
        writer.go_on()
        source.execute("ALTER USER copier@'%' IDENTIFIED BY 'second'")
        source.kill_threads("copier")
        wrong = replicated.update(source_yaml(SOURCE, source, "copier", "first"), "--dry-run")
        assert wrong.code == 0, "nothing changes by what is stored"
        refused = replicated.update(source_yaml(SOURCE, source, "copier", "third"))
        assert codes(refused) == [errors.master.SOURCE_CHECK_FAILED.code], refused.text
        loaded = _loaded(replicated, "login")
        right = replicated.update(source_yaml(SOURCE, source, "copier", "second"))
        assert right.code == 0, right.text
        assert _loaded(replicated, "login") == loaded
        cluster.hooks.release(moment)
        cluster.wait_replicating("login")
        writer.go_on()
        writer.stop()
    replicated.judge("login", source)
    assert _loaded(replicated, "login") > loaded, "chunks were left"
    cluster.dmctl("stop-task", "login")
    assert replicated.update(source_yaml(SOURCE, source)).code == 0


def test_a_paused_relay_stays_paused_at_another_worker(replicated: Replicated) -> None:
    """The pause lasts over the restart of its worker, and at a worker that has no relay log of the source."""
    cluster, source = replicated.cluster, replicated.old
    family = replicated.family("standing", source)
    shards = family.create(300)
    cluster.start_task(family.task())
    cluster.wait_replicating("standing")
    rows = "SELECT COUNT(*) FROM standing.orders"
    with Writer(shards, seed=62) as writer:
        writer.go_on()
        cluster.dmctl("pause-relay", "-s", SOURCE)
        writer.go_on()
        worker = cluster.worker_of(SOURCE)
        [spare] = [one for one in cluster.workers if one is not worker]
        assert spare.terminate() == 0
        worker.kill()
        until(lambda: not worker.session(), "what the worker has started ends by itself", 300)
        worker.start()
        cluster.wait_bound([SOURCE])
        cluster.wait_replicating("standing")
        _stands(replicated, writer)
        spare.start()
        cluster.wait_for_workers([spare])
        assert given_over(replicated) is worker
        until(lambda: replicated.relay().get("paused"), "the spare worker has heard of the pause")
        [(before,)] = replicated.target.query(rows)
        writer.go_on()
        assert replicated.relay()["paused"]
        assert replicated.target.query(rows) == [(before,)], "nothing was fetched"
        cluster.dmctl("resume-relay", "-s", SOURCE)
        cluster.wait_replicating("standing")
        writer.go_on()
        writer.stop()
    replicated.judge("standing", source)
    cluster.dmctl("stop-task", "standing")


def _stands(replicated: Replicated, writer: Writer) -> None:
    """Check that the relay log does not grow while the source is written to, and reports that it is paused."""
    head = replicated.relay()["relayBinlog"]
    writer.go_on()
    status = replicated.relay()
    assert status["paused"] and status["relayBinlog"] == head, status


def test_a_parked_table_resumes_after_its_source_has_moved(replicated: Replicated) -> None:
    """The new worker's relay log is another one, and nothing is written at the source until the table resumes."""
    cluster, source = replicated.cluster, replicated.old
    family = replicated.family("parked", source)
    first, second = family.create(100)
    cluster.start_task(family.task(extra="shard-mode: pessimistic\n"))
    cluster.wait_replicating("parked")
    add = "ALTER TABLE %s ADD COLUMN added INT NOT NULL DEFAULT 7"
    source.execute(add % first.name)
    locks = ("shard-ddl-lock", "parked")
    until(lambda: cluster.dmctl(*locks).json.get("locks"), "the table is parked")
    before = cluster.worker_of(SOURCE)
    [other] = [one for one in cluster.workers if one is not before]
    cluster.dmctl("transfer-source", SOURCE, other.name)
    assert cluster.worker_of(SOURCE) is other
    cluster.wait_replicating("parked")
    cluster.dmctl("shard-ddl-lock", "unlock", "parked-`parked`.`orders`")
    until(lambda: not cluster.dmctl(*locks).json.get("locks"), "the table has resumed")
    cluster.wait_joined("parked")
    source.execute(add % second.name)
    replicated.judge("parked", source)
    cluster.dmctl("stop-task", "parked")
