"""Tests `load: {defer-indexes: empty}`: an existing empty target table ends with exactly the indexes that it had."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2
from shardmerge.proto.failpoints import MadeToFail
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.target.tables import defer_existing
from shardmerge.worker.target.tables.deferred_index import DeferredIndex
from shardmerge.worker.target.tables.index_adder import IndexAdder
from shardmerge.worker.unit.contract import Finished
from tests.integration.snapshot_rig import META, Rig, subtask_config
from tests.integration.snapshot_tables import make_tables, servers, source, target
from tests.support.database import Database
from tests.support.hooks import Hooks
from tests.support.wait import until

__all__ = ["servers", "source", "target"]

ROWS = 30_000
COLUMNS = "id INT NOT NULL, a INT, b VARCHAR(40), c INT AS (a * 2), u INT NOT NULL, w TEXT, p INT, PRIMARY KEY (id)"
DEFERRED = {"k_a", "b'`,(", "hidden", "last"}
KEPT = {"PRIMARY", "u", "c", "w", "to_parent"}


@pytest.fixture
def hooks(tmp_path: Path) -> Iterator[Hooks]:
    hooks = Hooks(tmp_path / "hooks")
    yield hooks
    hooks.release_all()


def config_of(target: Database, *, existing: bool = True) -> config_pb2.SubTaskConfig:
    config = subtask_config(target)
    config.load.defer_indexes, config.load.defer_existing = True, existing
    return config


def make(source: Database, rows: int = ROWS) -> None:
    make_tables(
        source,
        f"CREATE TABLE t ({COLUMNS}) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4",
        f"INSERT INTO t (id, a, b, u, w, p) SELECT seq, seq % 97, HEX(seq * 7919), seq, 'x', NULL FROM seq_1_to_{rows}",
        "ANALYZE TABLE t",
    )


def make_target(target: Database, *further: str) -> str:
    """Create the table with indexes of every kind; return its CREATE TABLE as the server prints it."""
    mysql = target.flavor == "mysql"
    indexes = (
        "UNIQUE KEY u (u), KEY to_parent (p), KEY c (c), FULLTEXT KEY w (w), KEY k_a (a) COMMENT 'it''s, (a\\\\', "
        f"KEY `b'``,(` (b(5), a), KEY hidden (a, u) {'INVISIBLE' if mysql else 'IGNORED'}, "
        f"KEY last (u{' DESC' if mysql else ''}, b)"
    )
    target.execute(
        "CREATE DATABASE shard",
        "CREATE TABLE shard.parent (id INT PRIMARY KEY)",
        f"CREATE TABLE shard.t ({COLUMNS}, {indexes}, "
        "CONSTRAINT `f (``x` FOREIGN KEY (p) REFERENCES shard.parent (id)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4",
        "CREATE TABLE shard.child (x INT, FOREIGN KEY (x) REFERENCES shard.t (u))",
        *further,
    )
    return creation(target)


def creation(server: Database) -> str:
    [(_, text)] = server.query("SHOW CREATE TABLE shard.t")
    return str(text)


def indexes(target: Database) -> set[object]:
    return {row[2] for row in target.query("SHOW INDEX FROM shard.t")}


def owed(target: Database) -> list[object]:
    return [name for (name,) in target.query(f"SELECT index_name FROM {META}.deferred_index ORDER BY number")]


def add(rig: Rig) -> None:
    IndexAdder(rig.target_endpoint, META, rig.config.task, [TargetTable("shard", "t")], patient=True).add(StopSignal())


def count(target: Database) -> object:
    return target.query("SELECT COUNT(*) FROM shard.t")[0][0]


def test_dropped_before_the_load_and_added_after_it(source: Database, target: Database, tmp_path: Path) -> None:
    make(source)
    before = make_target(target)
    with Rig(source, target, tmp_path, config_of(target)) as rig:
        unit = rig.unit()
        assert indexes(target) == KEPT
        assert set(owed(target)) == DEFERRED
        assert isinstance(unit.run(StopSignal()), Finished)
        assert indexes(target) == KEPT
        add(rig)
        assert creation(target) == before
        assert owed(target) == []
        # The next start finds rows: nothing is dropped again.
        assert isinstance(rig.run(), Finished)
    assert creation(target) == before
    assert owed(target) == []
    assert count(target) == ROWS


@pytest.mark.parametrize(
    "moment", ["deferred.existing_recorded", "deferred.existing_dropped", "deferred.before_alter", "deferred.added"]
)
def test_interrupted(source: Database, target: Database, tmp_path: Path, hooks: Hooks, moment: str) -> None:
    """The next process completes the steps that the interrupted one did not reach."""
    make(source)
    before = make_target(target)
    with Rig(source, target, tmp_path, config_of(target)) as rig:
        hooks.fail(moment)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(MadeToFail):
            patch.setenv("SHARDMERGE_HOOKS", str(hooks.directory))
            assert isinstance(rig.run(), Finished)
            add(rig)
        hooks.release(moment)
        assert set(owed(target)) == DEFERRED
        unit = rig.unit()
        if "existing" in moment:
            assert indexes(target) == KEPT, "the table is empty: the rest is dropped"
        assert isinstance(unit.run(StopSignal()), Finished)
        add(rig)
    assert creation(target) == before
    assert owed(target) == []
    assert count(target) == ROWS


@pytest.mark.parametrize("moment", ["deferred.existing_recorded", "deferred.existing_dropped"])
def test_interrupted_and_then_without_the_setting(
    source: Database, target: Database, tmp_path: Path, hooks: Hooks, moment: str
) -> None:
    make(source)
    before = make_target(target)
    config = config_of(target)
    with Rig(source, target, tmp_path, config) as rig:
        hooks.fail(moment)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(MadeToFail):
            patch.setenv("SHARDMERGE_HOOKS", str(hooks.directory))
            rig.unit()
        hooks.release(moment)
        config.load.defer_indexes = config.load.defer_existing = False
        assert isinstance(rig.run(), Finished)
        add(rig)
    # With some of them dropped, those that are left come first.
    assert sorted(creation(target).replace(",", "").splitlines()) == sorted(before.replace(",", "").splitlines())
    assert owed(target) == []


@pytest.mark.turns
@pytest.mark.parametrize(
    ("existing", "rows", "statement"),
    [
        (False, ROWS, "DO 0"),
        (True, 50, "DO 0"),
        (True, ROWS, "INSERT INTO shard.t (id, u) VALUES (-1, -1)"),
    ],
)
def test_what_is_left_alone(
    source: Database, target: Database, tmp_path: Path, existing: bool, rows: int, statement: str
) -> None:
    """Without the setting, before a small load, and with a row."""
    make(source, rows)
    before = make_target(target, statement)
    with Rig(source, target, tmp_path, config_of(target, existing=existing)) as rig:
        rig.unit()
    assert creation(target) == before
    assert owed(target) == []


def test_a_table_without_a_key_for_rows_is_left_alone(source: Database, target: Database, tmp_path: Path) -> None:
    make_tables(
        source,
        "CREATE TABLE t (a INT NOT NULL, b INT)",
        f"INSERT INTO t SELECT seq, seq FROM seq_1_to_{ROWS}",
        "ANALYZE TABLE t",
    )
    target.execute("CREATE DATABASE shard", "CREATE TABLE shard.t (a INT NOT NULL, b INT, KEY k_a (a))")
    with Rig(source, target, tmp_path, config_of(target)) as rig:
        rig.unit()
    assert indexes(target) == {"k_a"}
    assert owed(target) == []


def test_an_index_to_which_a_foreign_key_refers_stays(source: Database, target: Database, tmp_path: Path) -> None:
    """Its table may be invisible to the account: the server decides. MySQL refuses to drop any index of a table of
    which a foreign key refers to columns that are not unique."""
    make(source)
    mysql = target.flavor == "mysql"
    make_target(
        target,
        *(["SET SESSION restrict_fk_on_non_standard_key = OFF"] if mysql else []),
        "ALTER TABLE shard.t DROP INDEX hidden",
        "CREATE DATABASE elsewhere",
        "CREATE TABLE elsewhere.child (x INT, FOREIGN KEY (x) REFERENCES shard.t (a))",
    )
    deferred = set[str]() if mysql else {"b'`,(", "last"}
    with Rig(source, target, tmp_path, config_of(target)) as rig:
        rig.unit()
        assert indexes(target) == KEPT | DEFERRED - {"hidden"} - deferred
        assert set(owed(target)) == deferred
        assert isinstance(rig.run(), Finished)
        add(rig)
    assert indexes(target) == KEPT | DEFERRED - {"hidden"}
    assert owed(target) == []


def test_the_index_of_auto_increment_stays(source: Database, target: Database, tmp_path: Path) -> None:
    make(source)
    make_target(target, "ALTER TABLE shard.t ADD n BIGINT NOT NULL AUTO_INCREMENT, ADD KEY numbered (n, a)")
    with Rig(source, target, tmp_path, config_of(target)) as rig:
        rig.unit()
    assert indexes(target) == KEPT | {"numbered"}


def test_what_the_server_would_not_add_again_stays(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(source)
    before = make_target(target)

    def addition(index: DeferredIndex) -> str:
        return f"ADD KEY `{index.name}` (gone)"

    monkeypatch.setattr(defer_existing, "_addition", addition)
    with Rig(source, target, tmp_path, config_of(target)) as rig:
        rig.unit()
    assert creation(target) == before
    assert owed(target) == []


def test_a_locked_table_keeps_them(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load does not wait long for a transaction that uses the table."""
    monkeypatch.setattr(defer_existing, "_MDL_WAIT_SECONDS", 1)
    make(source)
    before = make_target(target)
    user = target.connect()
    with user.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM shard.t")
        with Rig(source, target, tmp_path, config_of(target)) as rig:
            rig.unit()
    user.close()
    assert creation(target) == before
    assert owed(target) == []


def test_two_sources_agree(source: Database, target: Database, tmp_path: Path, hooks: Hooks) -> None:
    """The second one waits for the first, finds what the first has recorded, and writes no second record. A row that
    another session writes in between stays."""
    make(source)
    before = make_target(target)
    with Rig(source, target, tmp_path, config_of(target)) as rig:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHARDMERGE_HOOKS", str(hooks.directory))
            hooks.hold("deferred.existing_recorded")
            first = threading.Thread(target=rig.context, daemon=True)
            first.start()
            hooks.reached("deferred.existing_recorded")
            second = threading.Thread(target=rig.context, daemon=True)
            second.start()
            waiting = "SELECT 1 FROM information_schema.PROCESSLIST WHERE INFO LIKE 'SELECT GET_LOCK%'"
            until(lambda: target.query(waiting), "the second one waits", 30)
            target.execute("INSERT INTO shard.t (id, u) VALUES (-1, -1)")
            hooks.release_all()
            first.join(60)
            second.join(60)
        assert indexes(target) == KEPT
        assert owed(target) == list(dict.fromkeys(owed(target)))
        assert isinstance(rig.run(), Finished)
        add(rig)
    assert creation(target) == before
    assert count(target) == ROWS + 1


def test_a_source_finds_the_table_that_another_one_creates(
    source: Database, target: Database, tmp_path: Path, hooks: Hooks
) -> None:
    """Between the CREATE TABLE and the record of the first source, the second one takes the table for an existing one.
    A record of an earlier table of this name does not last."""
    make_tables(
        source,
        f"CREATE TABLE t ({COLUMNS}, KEY k_a (a), KEY k_b (b(7), u)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4",
        f"INSERT INTO t (id, a, b, u) SELECT seq, seq % 97, seq, seq FROM seq_1_to_{ROWS}",
        "ANALYZE TABLE t",
    )
    both = {"PRIMARY", "k_a", "k_b"}
    with Rig(source, target, tmp_path, config_of(target)) as rig:
        rig.take_over()
        stale = f"INSERT INTO {META}.deferred_index VALUES ('shard', 't', 0, 'stale', 'KEY `stale` (`u`)')"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHARDMERGE_HOOKS", str(hooks.directory))
            hooks.hold("deferred.created")
            first = threading.Thread(target=rig.context, daemon=True)
            first.start()
            hooks.reached("deferred.created")
            assert indexes(target) == both
            rig.context()
            assert indexes(target) == {"PRIMARY"}
            hooks.release_all()
            first.join(60)
        assert (indexes(target), owed(target)) == ({"PRIMARY"}, ["k_a", "k_b"])
        assert isinstance(rig.run(), Finished)
        add(rig)
        assert (indexes(target), owed(target)) == (both, [])
        target.execute("DROP TABLE shard.t", stale)
        rig.context()
        assert (indexes(target), owed(target)) == ({"PRIMARY"}, ["k_a", "k_b"])
