"""Tests the effect of a batch at a real target, and the errors that its row counts detect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.batch import Batch
from shardmerge.worker.core.mysql.connection import Endpoint, Side, connect
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.row_change import ChangeKind, RowChange
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import PartitionId, TablePlan
from shardmerge.worker.replicate.lane import committer
from shardmerge.worker.replicate.lane.target_writer import TargetWriter
from shardmerge.worker.target.apply import target_session
from shardmerge.worker.target.apply.cascades import ChildRows, SqlRows
from shardmerge.worker.target.apply.target_session import ApplySettings
from shardmerge.worker.target.records import checkpoint as checkpoints
from shardmerge.worker.target.records import subtask_record
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.schema import ensure_meta
from tests.support.database import Database
from tests.support.epochs import numbered
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.plans import integer, table_plan, text

PLAN = table_plan((integer(), text("v")), (0,))
ONE_LANE = table_plan((integer(), text("v")), (0,), one_lane=True)
LOOSE = replace(PLAN, may_lack_rows=True)
OWN = replace(ONE_LANE, may_lack_rows=True, own_keys=True)
WHO = SubtaskKey("dm_meta", "apply", "mysql-01")
ROWS = [(number, f"v{number}") for number in range(1, 7)]


@pytest.fixture(scope="module", params=[MariaDB, MySQL], ids=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    kind: type[Database] = request.param
    made = kind(tmp_path_factory.mktemp("apply") / "target", server_id=9).start()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(autouse=True, params=[0, 1 << 16], ids=["one by one", "together"])
def most_together(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send each statement in a packet of its own, or all of a small batch in one: the result is the same."""
    monkeypatch.setattr(committer, "_TOGETHER_BYTES", request.param)


@pytest.fixture
def target(server: Database) -> Database:
    server.execute(
        "DROP DATABASE IF EXISTS shop",
        "DROP DATABASE IF EXISTS dm_meta",
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, v VARCHAR(50), extra INT NOT NULL DEFAULT 7)",
        "INSERT INTO shop.orders (id, v) VALUES " + ", ".join(map(str, ROWS)),
    )
    session = connect(_endpoint(server), Side.TARGET, name="target")
    ensure_meta(session, "dm_meta")
    subtask_record.take_over(session, WHO, numbered(1), "")
    start = SourcePosition("mysql-bin.000001", 4)
    first = (Checkpoint(0, 1, 0, "relay", RelayOffset(1, 4), 0, start, 0.0),)
    subtask_record.begin(
        session,
        WHO,
        1,
        subtask_record.Phase.REPLICATE,
        start,
        (PLAN.table,),
        lambda inner: checkpoints.insert(inner, WHO, first),
    )
    session.close()
    return server


def _endpoint(server: Database) -> Endpoint:
    return Endpoint(server.host, server.port, server.user, server.password)


class Lane:
    """The writer of one lane, with batches of updates."""

    def __init__(self, target: Database, plan: TablePlan, *, safe_mode: bool = False) -> None:
        settings = ApplySettings("apply", "mysql-01", "dm_meta", _endpoint(target), safe_mode=safe_mode)
        self._writer = TargetWriter(settings, 0, 1)
        self._plan = plan
        self._at = self._writer.read_checkpoint()

    def update(self, *rows: tuple[int, str]) -> None:
        batch = Batch(0, 1, "mysql-bin.000001")
        for key, value in rows:
            batch.replace(self._plan, b"%d" % key, f"{key},'{value}'".encode(), 100)
        self.commit(batch)

    def commit(self, batch: Batch) -> None:
        following = self._at.moved(
            RelayOffset(1, self._at.offset.byte + 100), 0, SourcePosition("mysql-bin.000001", 100), 0.0
        )
        self._writer.commit(batch, following)
        self._at = following

    def idle(self) -> None:
        self._writer.keep_alive(self._at)


def _written_by(target: Database) -> dict[str, int]:
    found = target.query("SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_replace', 'Com_delete', 'Com_insert')")
    return {str(name): int(str(count)) for name, count in found}


def _rows(target: Database) -> list[tuple[object, ...]]:
    return list(target.query("SELECT id, v, extra FROM shop.orders ORDER BY id"))


@pytest.mark.parametrize("plan", [PLAN, ONE_LANE], ids=["overwrites", "deletes and inserts"])
def test_rows_that_exist_are_updated(target: Database, plan: TablePlan) -> None:
    before = _written_by(target)
    before["Com_delete"] += 1  # the first commit into a table deletes the record that it has no rows
    Lane(target, plan).update((2, "x"), (5, "y"))
    assert _rows(target) == [(1, "v1", 7), (2, "x", 7), (3, "v3", 7), (4, "v4", 7), (5, "y", 7), (6, "v6", 7)]
    after = _written_by(target)
    did = {name for name in after if after[name] > before[name]}
    assert did == ({"Com_replace"} if plan is PLAN else {"Com_delete", "Com_insert"})


@pytest.mark.parametrize("rows", [[(3, "v3")], [(1, "x"), (3, "v3"), (4, "y")]], ids=["alone", "among others"])
def test_a_row_that_was_the_same_already_is_no_divergence(target: Database, rows: list[tuple[int, str]]) -> None:
    lane = Lane(target, PLAN)
    lane.update(*rows)
    lane.update((6, "z"))
    expected = {**dict(ROWS), **dict(rows), 6: "z"}
    assert _rows(target) == [(key, value, 7) for key, value in sorted(expected.items())]


@pytest.mark.parametrize("plan", [PLAN, ONE_LANE], ids=["overwrites", "deletes and inserts"])
@pytest.mark.parametrize("others", [[], [(1, "x")], [(1, "v1"), (2, "x")]], ids=["alone", "changed", "same"])
def test_a_missing_row_is_a_divergence_and_nothing_is_written(
    target: Database, plan: TablePlan, others: list[tuple[int, str]]
) -> None:
    before = _rows(target)
    with pytest.raises(ShardmergeError) as caught:
        Lane(target, plan).update(*others, (99, "lost"))
    assert caught.value.spec is errors.replicate.DIVERGED
    assert "`id` = 99" in caught.value.message
    assert _rows(target) == before
    assert target.query("SELECT seq FROM dm_meta.lane_checkpoint") == [(0,)]


def test_an_error_names_the_shard_table_of_its_row(target: Database) -> None:
    """One statement has rows of several shard tables."""
    target.execute("ALTER TABLE shop.orders ADD UNIQUE (v)")
    other = replace(ONE_LANE, shard=1, table=replace(ONE_LANE.table, name="order_02"))
    missing, duplicate = Batch(0, 1, "mysql-bin.000001"), Batch(0, 1, "mysql-bin.000001")
    missing.remove(ONE_LANE, b"99", 100)
    missing.remove(other, b"100", 200)
    duplicate.put(ONE_LANE, b"99", b"99,'v1'", 100)
    duplicate.put(other, b"100", b"100,'fine'", 200)
    for batch, spec in (
        (missing, errors.replicate.DIVERGED),
        (duplicate, errors.replicate.TARGET_DUPLICATE_OTHER_KEY),
    ):
        with pytest.raises(ShardmergeError) as caught:
            Lane(target, ONE_LANE).commit(batch)
        assert caught.value.spec is spec
        assert "shop_01.order_01" in caught.value.message, caught.value.message
        assert "order_02" not in caught.value.message


def test_the_refused_row_is_found_at_each_place_of_its_statement(target: Database) -> None:
    target.execute("ALTER TABLE shop.orders ADD UNIQUE (v)")
    for refused in range(5):
        batch = Batch(0, 1, "mysql-bin.000001")
        for at in range(5):
            value = "v1" if at == refused else f"w{at}"
            batch.put(ONE_LANE, b"%d" % (10 + at), f"{10 + at},'{value}'".encode(), 1000 + at)
        with pytest.raises(ShardmergeError) as caught:
            Lane(target, ONE_LANE).commit(batch)
        assert caught.value.spec is errors.replicate.TARGET_DUPLICATE_OTHER_KEY
        assert str(SourcePosition("mysql-bin.000001", 1000 + refused)) in caught.value.message
    assert len(_rows(target)) == len(ROWS)


def test_an_error_names_the_row_that_has_the_value(target: Database) -> None:
    """Of whatever unique key, here of a column that no shard table has. The search changes nothing."""
    target.execute(
        "ALTER TABLE shop.orders ADD COLUMN seen TIMESTAMP NOT NULL DEFAULT '2001-01-01' ON UPDATE CURRENT_TIMESTAMP, "
        "ADD COLUMN upper_v VARCHAR(60) AS (UPPER(v)) STORED UNIQUE"
    )
    mapped = table_plan((integer(), text("v")), (0,), one_lane=True, mapping=PartitionId(1 << 44, 44))
    before = target.query("SELECT * FROM shop.orders ORDER BY id")
    batch, number = Batch(0, 1, "mysql-bin.000001"), str((1 << 44) + 99).encode()
    batch.put(mapped, number, number + b",'V4'", 100)
    with pytest.raises(ShardmergeError) as caught:
        Lane(target, mapped).commit(batch)
    assert caught.value.spec is errors.replicate.TARGET_DUPLICATE_OTHER_KEY
    assert "the row that has the value there has id 4" in caught.value.message, caught.value.message
    assert "`dmctl decode-id <file> 4`" in caught.value.workaround
    assert target.query("SELECT * FROM shop.orders ORDER BY id") == before


def test_what_fails_first_is_what_is_reported(target: Database) -> None:
    """A row is missing, and a later row exists already."""
    batch = Batch(0, 1, "mysql-bin.000001")
    batch.remove(ONE_LANE, b"99", 100)
    batch.put(ONE_LANE, b"1", b"1,'twice'", 200)
    with pytest.raises(ShardmergeError) as caught:
        Lane(target, ONE_LANE).commit(batch)
    assert caught.value.spec is errors.replicate.DIVERGED
    assert "`id` = 99" in caught.value.message


def test_the_row_that_is_there_already_is_named(target: Database) -> None:
    """Its statement follows others that succeed."""
    batch = Batch(0, 1, "mysql-bin.000001")
    batch.remove(ONE_LANE, b"6", 100)
    batch.put(ONE_LANE, b"5", b"5,'twice'", 200)
    batch.put(ONE_LANE, b"8", b"8,'fine'", 300)
    before = _rows(target)
    with pytest.raises(ShardmergeError) as caught:
        Lane(target, ONE_LANE).commit(batch)
    assert caught.value.spec is errors.replicate.COLLISION
    assert "`id` = 5" in caught.value.message
    assert _rows(target) == before


def test_a_zombie_is_fenced_in_each_state_of_its_rows(target: Database) -> None:
    """The newer epoch has written the rows: for the older one they look like a collision."""
    zombie = Lane(target, PLAN)
    session = connect(_endpoint(target), Side.TARGET, name="target")
    subtask_record.take_over(session, WHO, numbered(2), "")
    session.close()
    batch = Batch(0, 1, "mysql-bin.000001")
    batch.put(PLAN, b"1", b"1,'twice'", 100)
    before = _rows(target)
    with pytest.raises(ShardmergeError) as caught:
        zombie.commit(batch)
    assert caught.value.spec is errors.replicate.FENCED
    assert _rows(target) == before


def test_derived_changes_reach_only_rows_of_their_shard_table(target: Database) -> None:
    """Rows of other shard tables may refer to the same value."""
    plan = table_plan((integer(), text("v")), (0,), mapping=PartitionId(1 << 44, 44))
    own, other = (1 << 44) + 1, (2 << 44) + 1
    target.execute(f"INSERT INTO shop.orders (id, v) VALUES ({own}, 'p'), ({other}, 'p')")
    session = connect(_endpoint(target), Side.TARGET, name="target")
    SqlRows(session).delete(ChildRows(plan, ("v",), ((b"'p'",),)))
    session.close()
    assert target.query("SELECT id FROM shop.orders WHERE v = 'p'") == [(other,)]


def test_safe_mode_asks_for_no_row(target: Database) -> None:
    Lane(target, PLAN, safe_mode=True).update((1, "x"), (99, "new"))
    assert _rows(target)[0] == (1, "x", 7)
    assert _rows(target)[-1] == (99, "new", 7)


def test_what_the_sources_do_not_write_gets_its_default_again(target: Database) -> None:
    """Overwriting a row must reset the target's own columns, as deleting and inserting does."""
    target.execute("UPDATE shop.orders SET extra = 1")
    Lane(target, PLAN).update((1, "x"))
    Lane(target, ONE_LANE).update((2, "x"))
    assert _rows(target)[:3] == [(1, "x", 7), (2, "x", 7), (3, "v3", 1)]


def test_hundreds_of_composite_keys_go_in_short_lists(target: Database) -> None:
    plan = table_plan((integer("a"), integer("b"), text("v")), (0, 1), name="pairs")
    target.execute(
        "CREATE TABLE shop.pairs (a BIGINT, b BIGINT, v VARCHAR(9), PRIMARY KEY (a, b), KEY (b, a))",
        "INSERT INTO shop.pairs VALUES " + ",".join(f"({at % 7}, {at}, 'x')" for at in range(900)),
    )
    made = TablePlan(0, "mysql-01", plan.table, "shop", "pairs", plan.columns, plan.key)
    batch = Batch(0, 1, "mysql-bin.000001")
    for at in range(900):
        batch.remove(made, b"%d,%d" % (at % 7, at), 100)
    before = _written_by(target)["Com_delete"]
    writer = TargetWriter(ApplySettings("apply", "mysql-01", "dm_meta", _endpoint(target), safe_mode=False), 0, 1)
    at = writer.read_checkpoint()
    writer.commit(batch, at.moved(RelayOffset(1, 200), 0, SourcePosition("mysql-bin.000001", 200), 0.0))
    assert target.query("SELECT COUNT(*) FROM shop.pairs") == [(0,)]
    # One more ends the record that the shard table has no row.
    assert _written_by(target)["Com_delete"] - before == 5 + 1


@pytest.mark.parametrize("plan", [LOOSE, OWN], ids=["keys of anyone", "own keys"])
def test_a_loose_table_changes_and_loses_only_rows_that_are_there(target: Database, plan: TablePlan) -> None:
    batch = Batch(0, 1, "mysql-bin.000001")
    for key, value in ((2, "x"), (99, "lost"), (3, "v3")):
        batch.add(RowChange(0, 0, ChangeKind.UPDATE, plan, _row(key, "?"), _row(key, value)), 100)
    for key in (5, 98):
        batch.add(RowChange(0, 0, ChangeKind.DELETE, plan, _row(key, "?"), ()), 100)
    batch.add(RowChange(0, 0, ChangeKind.UPDATE, plan, _row(6, "?"), _row(7, "moved")), 100)
    batch.add(RowChange(0, 0, ChangeKind.UPDATE, plan, _row(97, "?"), _row(8, "came")), 100)
    Lane(target, plan).commit(batch)
    assert _rows(target) == [
        (1, "v1", 7),
        (2, "x", 7),
        (3, "v3", 7),
        (4, "v4", 7),
        (7, "moved", 7),
        (8, "came", 7),
    ]


def test_a_loose_table_replaces_a_row_under_a_key_of_its_own(target: Database) -> None:
    batch = Batch(0, 1, "mysql-bin.000001")
    for key in (1, 9):
        batch.add(RowChange(0, 0, ChangeKind.INSERT, OWN, (), _row(key, "new")), 100)
    Lane(target, OWN).commit(batch)
    assert _rows(target)[0] == (1, "new", 7)
    assert _rows(target)[-1] == (9, "new", 7)


@pytest.mark.parametrize("plan", [LOOSE, replace(LOOSE, one_lane=True)], ids=["proved by the count", "looked up"])
def test_a_row_of_anyone_is_not_replaced(target: Database, plan: TablePlan) -> None:
    before = _rows(target)
    batch = Batch(0, 1, "mysql-bin.000001")
    batch.add(RowChange(0, 0, ChangeKind.UPDATE, plan, _row(2, "?"), _row(2, "x")), 100)
    batch.add(RowChange(0, 0, ChangeKind.INSERT, plan, (), _row(1, "new")), 200)
    with pytest.raises(ShardmergeError) as caught:
        Lane(target, plan).commit(batch)
    assert caught.value.spec is errors.replicate.COLLISION
    assert "`id` = 1" in caught.value.message
    assert _rows(target) == before
    assert target.query("SELECT seq FROM dm_meta.lane_checkpoint") == [(0,)]


def test_a_key_in_other_letters_is_the_same_key(target: Database) -> None:
    """A row that the batch deletes is found by any spelling of its key, whatever its bytes."""
    made = table_plan((text("v"), integer("n")), (0,), name="words")
    plan = replace(made, target_table="words", may_lack_rows=True)
    target.execute(
        "CREATE TABLE shop.words (v VARCHAR(9) PRIMARY KEY, n BIGINT)", "INSERT INTO shop.words VALUES ('a', 1)"
    )
    batch = Batch(0, 1, "mysql-bin.000001")
    batch.add(RowChange(0, 0, ChangeKind.DELETE, plan, (b"'a'", b"1"), ()), 100)
    batch.add(RowChange(0, 0, ChangeKind.UPDATE, plan, (b"'A'", b"1"), (b"'A'", b"2")), 100)
    Lane(target, plan).commit(batch)
    assert target.query("SELECT v, n FROM shop.words") == []


@pytest.mark.parametrize("may_lack_rows", [False, True], ids=["exact", "loose"])
def test_keys_with_texts_of_another_character_set_find_their_rows(target: Database, may_lack_rows: bool) -> None:
    """The target keeps as utf8mb4 what the shard table keeps as latin1."""
    latin1 = replace(text("v", "latin1_swedish_ci"), charset="latin1")
    made = table_plan((integer(), latin1, text("w")), (0, 1), name="words")
    plan = replace(made, target_table="words", may_lack_rows=may_lack_rows)
    target.execute(
        "CREATE TABLE shop.words (id BIGINT, v VARCHAR(9) CHARACTER SET utf8mb4, w VARCHAR(9), PRIMARY KEY (id, v))",
        "INSERT INTO shop.words VALUES (1, 'é', 'x'), (2, 'ü', 'x'), (3, 'é', 'x'), (4, 'ö', 'x')",
    )
    batch = Batch(0, 1, "mysql-bin.000001")
    for key, word in ((b"1", b"_latin1 X'E9'"), (b"2", b"_latin1 X'FC'")):
        batch.add(RowChange(0, 0, ChangeKind.DELETE, plan, (key, word, b"'x'"), ()), 100)
    for key, word in ((b"3", b"_latin1 X'E9'"), (b"4", b"_latin1 X'F6'")):
        batch.add(RowChange(0, 0, ChangeKind.UPDATE, plan, (key, word, b"'x'"), (key, word, b"'y'")), 100)
    Lane(target, plan).commit(batch)
    assert target.query("SELECT id, v, w FROM shop.words ORDER BY id") == [(3, "é", "y"), (4, "ö", "y")]


def test_a_loose_table_without_a_key_changes_only_what_is_there(target: Database) -> None:
    plan = replace(table_plan((integer(), text("v")), ()), may_lack_rows=True)
    batch = Batch(0, 1, "mysql-bin.000001")
    batch.add(RowChange(0, 0, ChangeKind.UPDATE, plan, _row(1, "v1"), _row(1, "x")), 100)
    batch.add(RowChange(0, 0, ChangeKind.UPDATE, plan, _row(2, "other"), _row(2, "x")), 100)
    batch.add(RowChange(0, 0, ChangeKind.DELETE, plan, _row(99, "?"), ()), 100)
    batch.add(RowChange(0, 0, ChangeKind.DELETE, plan, _row(3, "v3"), ()), 100)
    Lane(target, plan).commit(batch)
    assert [found[:2] for found in _rows(target)] == [(1, "x"), (2, "v2"), (4, "v4"), (5, "v5"), (6, "v6")]


def test_many_keys_are_asked_for_in_few_statements(target: Database) -> None:
    target.execute(
        "INSERT INTO shop.orders (id, v) VALUES " + ", ".join(f"({number}, 'w')" for number in range(1000, 1400, 2))
    )
    batch = Batch(0, 1, "mysql-bin.000001")
    for number in range(1000, 1400):
        batch.add(RowChange(0, 0, ChangeKind.UPDATE, LOOSE, _row(number, "?"), _row(number, "x")), 100)
    Lane(target, LOOSE).commit(batch)
    assert target.query("SELECT COUNT(*), SUM(v = 'x') FROM shop.orders WHERE id >= 1000") == [(200, 200)]


def _row(key: int, value: str) -> tuple[bytes, bytes]:
    return b"%d" % key, f"'{value}'".encode()


@pytest.mark.parametrize("lost", ["seq = seq - 1", "epoch = epoch - 1", "lane = 7"])
def test_an_idle_lane_notices_that_its_last_commit_is_lost(
    target: Database, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """A fail-over to a replica that lagged: until the next change of the source nothing else would notice it."""
    monkeypatch.setattr(target_session, "_KEEP_ALIVE_SECONDS", -1.0)
    lane = Lane(target, PLAN)
    lane.idle()
    lane.update((2, "x"))
    lane.idle()
    target.execute(f"UPDATE dm_meta.lane_checkpoint SET {lost}")
    with pytest.raises(ShardmergeError) as caught:
        lane.idle()
    assert caught.value.spec is errors.replicate.FENCED
