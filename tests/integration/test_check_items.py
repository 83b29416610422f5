"""Tests that each further pre-check item passes, and fails or warns, with servers of different kinds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.mysql.connection import Endpoint, ServerInfo, Session, Side, connect, server_info
from shardmerge.worker.core.mysql.target_dialect import parse_dialect
from shardmerge.worker.target.records.schema import ensure_meta
from shardmerge.worker.verify.precheck import (
    CheckRequest,
    SparkSlots,
    WorkerView,
    check_subtask,
    precheck,
    worker_capacity,
)
from shardmerge.worker.verify.precheck.estimates import Size
from shardmerge.worker.verify.precheck.source import binlog_retention
from shardmerge.worker.verify.precheck.target import existing_rows
from tests.support.database import Database
from tests.support.pair import KINDS, emptied

_CLOCK = ("--sysdate-is-now",)
"""With this option SYSDATE() follows the session's `timestamp`, as if the server's clock did."""


class Ends:
    """A source with shard_1.t_1 and shard_2.t_2, and a target of the other kind."""

    def __init__(self, source: Database, target: Database) -> None:
        self.source, self.target = source, target
        self.config = config.SourceConfig(source_id="s1", flavor="auto")
        getattr(self.config, "from").CopyFrom(_endpoint(source))
        self.subtask = config.SubTaskConfig(
            task="merge",
            source_id="s1",
            mode=config.TASK_MODE_ALL,
            meta_schema="dm_meta",
            target=_endpoint(target),
            block_allow_list=config.BlockAllowList(name="shards", do_dbs=["shard_*"]),
            routes=[
                config.RouteRule(
                    name="r", schema_pattern="shard_*", table_pattern="t_*", target_schema="merged", target_table="t"
                )
            ],
        )

    def tables(self, definition: str) -> None:
        self.source.execute(
            "DROP TABLE IF EXISTS shard_1.t_1, shard_2.t_2",
            f"CREATE TABLE shard_1.t_1 ({definition})",
            f"CREATE TABLE shard_2.t_2 ({definition})",
        )

    def map_ids(self) -> None:
        self.subtask.column_mappings.add(
            name="m", schema_pattern="shard_*", table_pattern="t_*", source_column="id", target_column="id",
            expression="partition id", arguments=["1", "shard", "t", "_"],
        )  # fmt: skip

    def found(self, item: str, question: CheckRequest | None = None) -> list[pb.CheckResult]:
        return [one for one in check_subtask(self.config, self.subtask, question) if one.name == item]

    def only(self, item: str, question: CheckRequest | None = None) -> pb.CheckResult:
        [result] = self.found(item, question)
        return result

    def passes(self, item: str, question: CheckRequest | None = None) -> str:
        """Check that the item passes; return its description."""
        result = self.only(item, question)
        assert (result.state, result.code) == (pb.CHECK_STATE_PASS, 0), result
        return result.desc


def _endpoint(server: Database) -> config.Endpoint:
    return config.Endpoint(host="127.0.0.1", port=server.port, user="root")


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Database]]:
    """Start the servers; the parameter is the source's kind."""
    folder = tmp_path_factory.mktemp("items")
    [other] = KINDS.keys() - {request.param}
    made = [KINDS[kind](folder / kind, 41 + number) for number, kind in enumerate((request.param, other))]
    for server in made:
        server.options = (*server.options, *_CLOCK)
    try:
        yield [server.start() for server in made]
    finally:
        for server in made:
            server.stop()


@pytest.fixture
def ends(started: list[Database]) -> Ends:
    source, target = (emptied(server) for server in started)
    source.execute("CREATE DATABASE shard_1", "CREATE DATABASE shard_2")
    made = Ends(source, target)
    made.tables("id bigint PRIMARY KEY, v int")
    return made


def _with(result: pb.CheckResult) -> tuple[int, bool]:
    return result.code, result.state == pb.CHECK_STATE_FAIL


def _statement(result: pb.CheckResult, begin: str) -> str:
    """Return the statement that an instruction contains."""
    return begin + result.instruction.partition(begin)[2].partition(";")[0]


@pytest.mark.turns
def test_connections(ends: Ends) -> None:
    assert "source s1 up to 10 of" in ends.passes("conn_number")
    before = {server: server.query("SELECT @@GLOBAL.max_connections")[0][0] for server in (ends.source, ends.target)}
    try:
        ends.source.execute("SET GLOBAL max_connections = 20")
        ends.target.execute("SET GLOBAL max_connections = 20")
        ends.subtask.snapshot.threads = 30
        source, target = ends.found("conn_number")
        assert (_with(source), _with(target)) == ((12026, True), (12026, True))
        assert "source s1: the task opens up to 36 connections" in source.error_msg
        assert "target: the task opens up to 33 connections" in target.error_msg
        for server, result in ((ends.source, source), (ends.target, target)):
            server.execute(_statement(result, "SET GLOBAL max_connections"))
        ends.passes("conn_number")
        # The connections of two sources of a task to one target.
        ends.target.execute("SET GLOBAL max_connections = 50")
        ends.passes("conn_number")
        two = ends.only("conn_number", CheckRequest(family=[ends.subtask, ends.subtask]))
        assert _with(two) == (12026, True) and "66 connections" in two.error_msg
        ends.target.execute("SET GLOBAL max_connections = 35")
        others = [ends.target.connect() for _ in range(10)]
        assert _with(ends.only("conn_number")) == (12027, False)
        for other in others:
            other.close()
    finally:
        for server, value in before.items():
            server.execute(f"SET GLOBAL max_connections = {value}")


def test_connections_of_the_account(ends: Ends) -> None:
    ends.target.execute(
        "DROP USER IF EXISTS few@'%'", "CREATE USER few@'%'", "GRANT ALL ON *.* TO few@'%'",
        "ALTER USER few@'%' WITH MAX_USER_CONNECTIONS 5",
    )  # fmt: skip
    ends.subtask.target.user = "few"
    result = ends.only("conn_number")
    assert _with(result) == (12026, True)
    assert "the account's max_user_connections allows 5" in result.error_msg
    ends.target.execute("ALTER USER few@'%' WITH MAX_USER_CONNECTIONS 14")
    ends.passes("conn_number")


def test_versions_of_the_target(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ends.target.flavor in ends.passes("downstream_version").lower() or "9." in ends.passes("downstream_version")

    def told(text: str, version: tuple[int, int, int], flavor: str) -> None:
        def answer(session: Session) -> ServerInfo:
            dialect = parse_dialect(text, "")
            return dataclasses.replace(server_info(session), text=text, version=version, flavor=flavor, dialect=dialect)

        monkeypatch.setattr(existing_rows, "server_info", answer)

    for text, version, flavor, outcome in (
        ("5.6.51", (5, 6, 51), "mysql", (12034, True)),
        ("10.1.48-MariaDB", (10, 1, 48), "mariadb", (12034, True)),
        ("13.0.1-MariaDB", (13, 0, 1), "mariadb", (12035, False)),
        ("5.7.25-TiDB-v3.0.20", (5, 7, 25), "mysql", (12034, True)),
        ("8.0.11-TiDB-v7.5.1", (8, 0, 11), "mysql", (0, False)),
        ("8.0.11-TiDB-v9.0.0", (8, 0, 11), "mysql", (12035, False)),
        ("8.4.0", (8, 4, 0), "mysql", (0, False)),
    ):
        told(text, version, flavor)
        assert _with(ends.only("downstream_version")) == outcome, text


def test_rooms_of_the_target(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "does not report its free disk" in ends.passes("free_space")
    if ends.target.flavor != "mariadb":
        return
    ends.target.execute("INSTALL SONAME 'disks'")
    try:
        assert "the target has " in ends.passes("free_space")

        def huge(tables: object) -> Size:
            return Size(1, 1 << 60)

        monkeypatch.setattr(precheck, "size_of", huge)
        assert _with(ends.only("free_space")) == (12036, True)
    finally:
        ends.target.execute("UNINSTALL SONAME 'disks'")


def test_rows_that_are_there_already(ends: Ends) -> None:
    ends.passes("downstream_table_empty")
    ends.target.execute("CREATE DATABASE merged", "CREATE TABLE merged.t (id bigint PRIMARY KEY, v int)")
    ends.passes("downstream_table_empty")
    ends.target.execute("INSERT INTO merged.t VALUES (1, 1)")
    result = ends.only("downstream_table_empty")
    assert _with(result) == (12037, True)
    assert "merged.t holds rows that the task has no record of" in result.error_msg
    ends.subtask.replicate.safe_mode = True
    assert _with(ends.only("downstream_table_empty")) == (12038, False)
    ends.subtask.replicate.safe_mode = False
    ends.subtask.mode = config.TASK_MODE_INCREMENTAL
    assert "continues from existing rows" in ends.passes("downstream_table_empty")
    ends.subtask.mode = config.TASK_MODE_ALL
    # Rows of another source are no failure; nor are rows of this source, unless it begins anew.
    _record(ends, "s2")
    ends.passes("downstream_table_empty", CheckRequest(as_recorded=True, together=frozenset({"s1"})))
    ends.passes("downstream_table_empty", CheckRequest(as_recorded=False, together=frozenset({"s1"})))
    again = CheckRequest(as_recorded=False, together=frozenset({"s1", "s2"}))
    assert _with(ends.only("downstream_table_empty", again)) == (12037, True)
    _record(ends, "s1")
    ends.passes("downstream_table_empty", CheckRequest(as_recorded=True, together=frozenset({"s1"})))
    ends.subtask.task = "another"
    assert _with(ends.only("downstream_table_empty", CheckRequest(as_recorded=True))) == (12037, True)


def test_rows_beside_the_ids_of_a_source(ends: Ends) -> None:
    ends.map_ids()
    ends.target.execute(
        "CREATE DATABASE merged", "CREATE TABLE merged.t (id bigint PRIMARY KEY, v int)",
        f"INSERT INTO merged.t VALUES ({2 << 59}, 1)",
    )  # fmt: skip
    assert _with(ends.only("downstream_table_empty")) == (12039, False)
    _record(ends, "s2")
    ends.passes("downstream_table_empty", CheckRequest(as_recorded=True))
    shard_2 = (1 << 59) | (2 << 52) | (2 << 44)
    ends.target.execute(f"INSERT INTO merged.t VALUES ({shard_2 + 7}, 1)")
    result = ends.only("downstream_table_empty", CheckRequest(as_recorded=True))
    assert _with(result) == (12037, True)
    assert f"where `id` BETWEEN {shard_2} AND {shard_2 + (1 << 44) - 1}" in result.error_msg
    _record(ends, "s1")  # the rows are the task's own
    ends.passes("downstream_table_empty", CheckRequest(as_recorded=True))


def _record(ends: Ends, source: str) -> None:
    endpoint = Endpoint.from_proto(_endpoint(ends.target))
    session = connect(endpoint, Side.TARGET, name="target")
    try:
        ensure_meta(session, "dm_meta")
        with session.cursor() as cursor:
            cursor.execute(
                "INSERT INTO dm_meta.snapshot_table VALUES ('merge', %s, 0, 'shard_1', 't_1', 'merged', 't')", (source,)
            )
    finally:
        session.close()


def test_collations_of_keys(ends: Ends) -> None:
    assert "no unique key holds text" in ends.passes("collation")
    ends.tables("id varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, v varchar(20)")
    ends.passes("collation")
    ends.target.execute(
        "CREATE DATABASE merged",
        "CREATE TABLE merged.t (id varchar(20) COLLATE utf8mb4_general_ci PRIMARY KEY, "
        "v varchar(20) COLLATE utf8mb4_general_ci) CHARACTER SET utf8mb4",
    )
    result = ends.only("collation")
    assert _with(result) == (12061, False)
    assert "shard_1.t_1.id has utf8mb4_bin, the target's id utf8mb4_general_ci" in result.error_msg
    assert ".v " not in result.error_msg  # no key
    ends.target.execute("ALTER TABLE merged.t MODIFY id varchar(20) COLLATE utf8mb4_bin")
    ends.passes("collation")
    # Created like the first shard table.
    ends.target.execute("DROP TABLE merged.t")
    ends.source.execute(
        "ALTER TABLE shard_1.t_1 MODIFY id varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
    )
    assert "shard_2.t_2.id has utf8mb4_bin" in ends.only("collation").error_msg


def test_sql_modes(ends: Ends) -> None:
    before = ends.target.query("SELECT @@GLOBAL.sql_mode")[0][0]
    ends.passes("sql_mode")
    try:
        ends.target.execute("SET GLOBAL sql_mode = 'ANSI_QUOTES'")
        result = ends.only("sql_mode")
        assert _with(result) == (12062, False)
        assert "ANSI_QUOTES at the target alone" in result.error_msg
    finally:
        ends.target.execute(f"SET GLOBAL sql_mode = '{before}'")


def test_what_the_source_keeps_of_its_binlog(ends: Ends) -> None:
    ends.passes("binlog_retention")
    before = ends.source.query("SELECT @@GLOBAL.binlog_expire_logs_seconds")[0][0]
    try:
        ends.source.execute("SET GLOBAL binlog_expire_logs_seconds = 3600")
        result = ends.only("binlog_retention")
        assert _with(result) == (12043, False)
        assert "removes its binary logs after 60 minutes" in result.error_msg
        ends.source.execute(_statement(result, "SET GLOBAL binlog_expire_logs_seconds"))
        ends.passes("binlog_retention")
    finally:
        ends.source.execute(f"SET GLOBAL binlog_expire_logs_seconds = {before}")
    ends.source.purge()
    result = ends.only("binlog_retention")
    assert _with(result) == (12043, False)
    assert "older ones are gone" in result.error_msg


def test_what_needs_a_privilege_that_another_check_reports(ends: Ends) -> None:
    ends.source.execute("DROP USER IF EXISTS dm@'%'", "CREATE USER dm@'%'", "GRANT SELECT ON *.* TO dm@'%'")
    getattr(ends.config, "from").user = "dm"
    for item in ("binlog_retention",):
        result = ends.only(item)
        assert _with(result) == (12050, False)
        assert result.instruction == "Grant what item replication_privilege names."
    [missing] = ends.found("replication_privilege")
    ends.source.execute(*(line for line in missing.instruction.split("\n") if line))
    assert {one.state for one in ends.found("binlog_retention")} <= {pb.CHECK_STATE_PASS, pb.CHECK_STATE_WARN}
    assert not [one for one in ends.found("binlog_retention") if one.code == 12050]
    assert not [one for one in ends.found("gtid_gaps") if one.code == 12050]


def test_gtids_that_are_missing(ends: Ends) -> None:
    ends.subtask.mode = config.TASK_MODE_INCREMENTAL
    if ends.source.flavor == "mariadb":
        [(executed,)] = ends.source.query("SELECT @@GLOBAL.gtid_binlog_pos")
        ends.subtask.start.gtid_set = str(executed)
        ends.passes("gtid_gaps")
        ends.passes("meta_position")
        ends.source.execute("CREATE TABLE shard_1.x (i int)")
        ends.source.purge()
        gone = ends.only("meta_position")
        assert _with(gone) == (12040, True) and "are purged" in gone.error_msg
        ends.subtask.start.gtid_set = "0-77-1000000"
        assert _with(ends.only("gtid_gaps")) == (12045, True)
        return
    [(executed, uuid)] = ends.source.query("SELECT @@GLOBAL.gtid_executed, @@GLOBAL.server_uuid")
    ends.subtask.start.gtid_set = str(executed).replace("\n", "")
    ends.passes("gtid_gaps")
    ends.subtask.start.gtid_set = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"
    unknown = ends.only("gtid_gaps")
    assert _with(unknown) == (12045, True)
    assert "3e11fa47-71ca-11e1-9e33-c80aa9429562:1, which" in unknown.error_msg
    ends.subtask.start.gtid_set = f"{uuid}:1-5:8-9"
    holes = ends.only("gtid_gaps")
    assert _with(holes) == (12044, False) and f"has holes: {uuid}:6-7" in holes.error_msg
    ends.subtask.mode = config.TASK_MODE_ALL
    ends.passes("gtid_gaps")
    ends.source.execute(f"SET GTID_NEXT = '{uuid}:1000000'", "BEGIN", "COMMIT", "SET GTID_NEXT = AUTOMATIC")
    holes = ends.only("gtid_gaps")
    assert _with(holes) == (12044, False) and "999999" in holes.error_msg


def test_clocks(ends: Ends) -> None:
    ends.passes("clock_skew")
    assert _with(ends.only("clock_skew", CheckRequest(master_clock=1000.0, arrived=1100.0))) == (12052, False)
    ends.passes("clock_skew", CheckRequest(master_clock=1000.0, arrived=1004.0))
    getattr(ends.config, "from").session["timestamp"] = "1000000"
    result = ends.only("clock_skew")
    assert _with(result) == (12052, False)
    assert "the clock of source s1 is " in result.error_msg and "earlier than that of worker" in result.error_msg
    assert "target" in result.error_msg  # the target's clock is ahead of the source's
    getattr(ends.config, "from").session.clear()
    ends.subtask.target.session["timestamp"] = "2000000000"
    assert "the clock of target is " in ends.only("clock_skew").error_msg


def _worker(
    folder: Path, total: int, free: int, promised: int = 0, *, runs: bool = False, lost: bool = False
) -> CheckRequest:
    return CheckRequest(worker=WorkerView("w1", SparkSlots(total, free, promised, lost), folder / "relay", runs))


def test_slots_of_spark(ends: Ends, tmp_path: Path) -> None:
    assert "16 of 16 free" in ends.passes("spark", _worker(tmp_path, 16, 16))
    assert _with(ends.only("spark", _worker(tmp_path, 5, 5))) == (12054, False)
    assert _with(ends.only("spark", _worker(tmp_path, 16, 3))) == (12054, False)
    few = ends.only("spark", _worker(tmp_path, 16, 1))
    assert _with(few) == (12053, True)
    assert "a chunk reader and then 2 lanes take at least 2 Spark slots" in few.error_msg
    assert "1 of 16 are free" in few.error_msg
    assert "local[21]" in few.instruction
    ends.passes("spark", _worker(tmp_path, 16, 1, runs=True))  # the task itself uses the other slots
    # Another task was accepted, and has not taken its slots yet.
    assert _with(ends.only("spark", _worker(tmp_path, 16, 16, 15))) == (12053, True)
    assert _with(ends.only("spark", _worker(tmp_path, 16, 16, 15, runs=True))) == (12053, True)
    assert _with(ends.only("spark", _worker(tmp_path, 16, 16, lost=True))) == (12055, True)
    assert ends.found("spark") == []  # no worker is named


def test_the_disk_of_the_relay_log(ends: Ends, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    question = _worker(tmp_path, 16, 16)
    assert " free; " in ends.passes("relay_disk", question)
    ends.config.purge.remain_space_gib = 1 << 20
    short = ends.only("relay_disk", question)
    assert _with(short) == (12057, False) and "less than purge.remain-space" in short.error_msg
    ends.config.purge.remain_space_gib = 0

    def little(directory: Path) -> int:
        return 1 << 20

    monkeypatch.setattr(worker_capacity, "_free", little)
    monkeypatch.setattr(binlog_retention, "_LEAST_AGE_SECONDS", 0.0)
    grown = ends.only("relay_disk", question)
    assert _with(grown) == (12057, False) and " a day" in grown.error_msg
    ends.source.execute(f"INSERT INTO shard_1.t_1 (id) VALUES {', '.join(f'({n})' for n in range(5000))}")
    ends.source.execute("ANALYZE TABLE shard_1.t_1")
    ends.subtask.snapshot.bytes_per_second = 1
    full = ends.only("relay_disk", question)
    assert _with(full) == (12056, True) and "grows by about" in full.error_msg


@pytest.mark.parametrize(
    ("parts", "beyond"),
    [
        pytest.param(["1", "shard", "t", "_"], 1 << 44, id="44 bits"),
        pytest.param(["1", "", "t_"], 1 << 51, id="a part left out"),
        pytest.param(["1", "shard", "t", "_"], -1, id="negative"),
    ],
)
def test_ids_that_do_not_fit_their_mapping(ends: Ends, parts: list[str], beyond: int) -> None:
    ends.tables("id bigint PRIMARY KEY, v int")
    ends.map_ids()
    ends.subtask.column_mappings[0].arguments[:] = parts
    last = beyond - 1 if beyond > 0 else 0
    ends.source.execute(f"INSERT INTO shard_2.t_2 VALUES ({last}, 1)")
    assert 12020 not in [one.code for one in ends.found("auto_increment_ID")]
    ends.source.execute(f"INSERT INTO shard_2.t_2 VALUES ({beyond}, 1)")
    [beyond_it] = [one for one in ends.found("auto_increment_ID") if one.code == 12020]
    assert beyond_it.state == pb.CHECK_STATE_FAIL
    assert "shard_2.t_2.id" in beyond_it.error_msg and f" {beyond}" in beyond_it.error_msg


def test_counters_near_their_end(ends: Ends) -> None:
    ends.tables("id tinyint AUTO_INCREMENT PRIMARY KEY, v int")
    ends.source.execute("ALTER TABLE shard_1.t_1 AUTO_INCREMENT = 114")
    assert 12022 not in [one.code for one in ends.found("auto_increment_ID")]
    ends.source.execute("ALTER TABLE shard_1.t_1 AUTO_INCREMENT = 115")
    [near] = [one for one in ends.found("auto_increment_ID") if one.code == 12022]
    assert "shard_1.t_1.id at 115 of 127" in near.error_msg and near.state == pb.CHECK_STATE_WARN


def test_a_table_without_a_key(ends: Ends) -> None:
    ends.passes("primary_key")
    ends.tables("id bigint, v int")
    result = ends.only("primary_key")
    assert _with(result) == (12012, False)
    assert "shard_1.t_1, shard_2.t_2" in result.error_msg


def test_triggers(ends: Ends) -> None:
    """A trigger at the target fails; one at a source is named; one that the account may not see is a warning."""
    ends.passes("triggers")
    ends.source.execute("CREATE TRIGGER shard_1.mine BEFORE INSERT ON shard_1.t_1 FOR EACH ROW SET NEW.v = 1")
    result = ends.only("triggers")
    assert _with(result) == (12090, False)
    assert "mine on shard_1.t_1" in result.error_msg
    ends.source.execute("DROP TRIGGER shard_1.mine")
    ends.target.execute(
        "CREATE DATABASE merged",
        "CREATE TABLE merged.t (id bigint PRIMARY KEY, v int)",
        "CREATE TABLE merged.other (id bigint PRIMARY KEY)",
        "CREATE TRIGGER merged.stranger BEFORE INSERT ON merged.other FOR EACH ROW SET NEW.id = 1",
    )
    ends.passes("triggers")
    ends.target.execute("CREATE TRIGGER merged.twice BEFORE INSERT ON merged.t FOR EACH ROW SET NEW.v = 2")
    result = ends.only("triggers")
    assert _with(result) == (12091, True)
    assert "merged.t has triggers" in result.error_msg
    assert "twice" in result.error_msg
    ends.target.execute(
        "DROP TRIGGER merged.twice",
        "CREATE USER poor@'%' IDENTIFIED BY ''",
        "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX ON *.* TO poor@'%'",
    )
    try:
        ends.subtask.target.user = "poor"
        result = ends.only("triggers")
    finally:
        ends.target.execute("DROP USER poor@'%'")
    assert _with(result) == (12092, False)
    assert "GRANT TRIGGER ON `merged`.* TO 'poor'@'%';" in result.instruction


def test_every_item_can_be_left_out(ends: Ends, tmp_path: Path) -> None:
    question = _worker(tmp_path, 1, 1)
    names = {one.name for one in check_subtask(ends.config, ends.subtask, question)}
    spared = {"connection", "target_connection"}
    ends.subtask.ignore_checking_items.extend(sorted(names - spared))
    assert {one.name for one in check_subtask(ends.config, ends.subtask, question)} == spared


def test_what_does_not_apply(ends: Ends) -> None:
    for item in ("local_infile", "empty_region", "region_distribution", "downstream_mutex_features"):
        assert ends.passes(item).startswith("does not apply here: ")


def _mapped(ends: Ends, *arguments: str) -> None:
    ends.subtask.ClearField("column_mappings")
    ends.subtask.column_mappings.add(
        name="m", schema_pattern="shard_*", table_pattern="t_*", source_column="id", target_column="id",
        expression="partition id", arguments=arguments,
    )  # fmt: skip


@pytest.mark.parametrize("event", ["insert", "update", "delete"])
def test_filtered_rows_whose_keys_another_shard_table_may_have(ends: Ends, event: str) -> None:
    ends.passes("filter_rules")
    ends.subtask.event_filters.add(
        name="f", schema_pattern="shard_1", table_pattern="t_*", events=[event], action=config.FILTER_ACTION_IGNORE
    )
    found = ends.only("filter_rules")
    assert _with(found) == (12064, False)
    assert "shard_1.t_1, and" in found.error_msg
    assert "`merged`.`t`" in found.error_msg
    # Tests each way out.
    _mapped(ends, "1", "shard", "t", "_")
    ends.passes("filter_rules")
    _mapped(ends, "1", "", "t", "_")
    assert _with(ends.only("filter_rules")) == (12064, False)
    ends.subtask.ClearField("column_mappings")
    ends.subtask.routes[0].extract_table.pattern = "t_(.*)"
    ends.subtask.routes[0].extract_table.target_column = "c_table"
    ends.passes("filter_rules")
    # A table of another source may have the same name.
    other = config.SubTaskConfig()
    other.CopyFrom(ends.subtask)
    other.source_id = "s2"
    family = CheckRequest(family=[ends.subtask, other])
    assert _with(ends.only("filter_rules", family)) == (12064, False)
    ends.subtask.routes[0].extract_source.pattern = "(.*)"
    ends.subtask.routes[0].extract_source.target_column = "c_source"
    ends.passes("filter_rules", family)
    ends.subtask.routes[0].ClearField("extract_source")
    other.routes[0].target_table = "elsewhere"
    ends.passes("filter_rules", family)


def test_an_expression_filter_for_a_table_that_is_not_there(ends: Ends) -> None:
    ends.subtask.routes[0].ClearField("target_table")
    rule = ends.subtask.expression_filters.add(name="gone", schema="shard_1", table="t_1", insert_value="v = 1")
    ends.passes("filter_rules")
    for schema, table in (("shard_1", "t_2"), ("shard1", "t_1"), ("other", "t")):
        rule.schema, rule.table = schema, table
        found = ends.only("filter_rules")
        assert _with(found) == (12074, False)
        assert f"expression filter gone is for {schema}.{table}" in found.error_msg
