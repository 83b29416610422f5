"""DM's documented files load with the meaning that DM's documentation gives them (the files:
tests/unit/proto/config/dm)."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.check import FileKind, check_text
from shardmerge.proto.config.daemon.daemon_file import read_daemon
from shardmerge.proto.config.daemon.model import MasterFile, WorkerFile
from shardmerge.proto.config.daemon.tls import tls_of
from shardmerge.proto.config.document.yaml_file import read
from shardmerge.proto.config.source import SourceModel, check_source, parse_source_file
from shardmerge.proto.config.task.task_file import TaskFile, check_file, notes_of_task
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.tls.model import Tls, TlsFiles
from shardmerge.worker.rules import Rules

FOLDER = Path(__file__).parent / "dm"


def task(name: str) -> TaskFile:
    text = (FOLDER / name).read_text()
    document = read(text, name)
    model, findings = check_file(document, {})
    assert not findings
    assert model is not None
    return TaskFile(model, notes_of_task(document, model), text, {})


def notes(file: TaskFile) -> dict[str, str]:
    """By key, without lines."""
    told = (note.split(": ", 2) for note in file.notes)
    return {parts[1]: parts[2] for parts in told}


def test_the_advanced_task() -> None:
    file = task("task-advanced.yaml")
    assert (file.name, file.source_ids) == ("test", ("mysql-replica-01", "mysql-replica-02"))
    one, two = file.to_subtasks()
    for subtask in (one, two):
        assert subtask.mode == pb.TASK_MODE_ALL
        assert subtask.shard_mode == pb.SHARD_MODE_PESSIMISTIC
        assert subtask.meta_schema == "dm_meta"
        assert not subtask.case_sensitive
        assert subtask.HasField("online_ddl")
        assert (subtask.target.host, subtask.target.port, subtask.target.user) == ("192.168.0.1", 4000, "root")
        assert dict(subtask.target.session) == {
            "sql_mode": "ANSI_QUOTES,NO_ZERO_IN_DATE,NO_ZERO_DATE",
            "tidb_skip_utf8_check": "1",
            "tidb_constraint_check_in_place": "0",
        }
        tls = pb.Tls(ca="/path/to/ca.pem", cert="/path/to/cert.pem", key="/path/to/key.pem")
        assert subtask.target.tls == tls
        assert subtask.snapshot == pb.SnapshotConfig(threads=4, chunk_rows=8096, position="auto")
        assert not subtask.HasField("start_at") and not subtask.start.file
    # 16 workers of DM are at most 4 lanes; a batch is an upper bound.
    assert (one.replicate.lanes, one.replicate.batch_rows, one.replicate.safe_mode) == (4, 100, False)
    assert (two.replicate.lanes, two.replicate.batch_rows) == (4, 20_000)


def test_the_advanced_tasks_rules() -> None:
    one, two = task("task-advanced.yaml").to_subtasks()
    rules = Rules.from_config(one)
    for schema, table, target in (
        ("test_1", "t_1", ("test", "t")),
        ("test_1", "tx", ("test", "tx")),
        ("TEST_2", "T_2", ("test", "t")),
        ("test", "t_1", ("test", "t_1")),
        ("user", "information", ("user", "information")),
    ):
        route = rules.route(schema, table)
        assert route is not None
        assert (route.target_schema, route.target_table) == target
    for schema, table in (("user", "log"), ("test_1", "x"), ("account", "a"), ("mysql", "user"), ("other", "t_1")):
        assert rules.route(schema, table) is None
    assert Rules.from_config(two).route("user", "log") is None
    assert Rules.from_config(two).route("test_1", "t_1") is not None
    [first, second] = one.routes
    assert first.extract_table == pb.ExtractColumn(pattern="t_(.*)", target_column="c_table")
    assert first.extract_schema == pb.ExtractColumn(pattern="test_(.*)", target_column="c_schema")
    assert first.extract_source == pb.ExtractColumn(pattern="(.*)", target_column="c_source")
    assert not second.HasField("extract_table")
    ignoring, doing = one.event_filters
    assert (list(ignoring.events), ignoring.action) == (["truncate table", "drop table"], pb.FILTER_ACTION_IGNORE)
    assert (list(doing.events), doing.action, doing.table_pattern) == (["all dml"], pb.FILTER_ACTION_DO, "")
    assert list(one.expression_filters) == [
        pb.ExpressionFilter(name="even_c", schema="expr_filter", table="tbl", insert_value="c % 2 = 0")
    ]
    assert not two.event_filters and not two.expression_filters and not two.routes


def test_the_advanced_tasks_notes_are_true_to_dm() -> None:
    told = notes(task("task-advanced.yaml"))
    for key, says in {
        "timezone": "both sides always use UTC",
        "loaders.global.on-duplicate-logical": "none is replaced or skipped",
        "loaders.global.import-mode": "multi-row INSERT",
        "mydumpers.global.chunk-filesize": "chunks are cut by rows",
        "syncers.global.worker-count": "at most 4",
        "syncers.global.safe-mode-duration": "a restart repeats nothing",
        "validators": "`dmctl compare` compares every row",
        "mysql-instances[1].syncer-thread": "at most 4",
        "target-database.max-allowed-packet": "as large as the server accepts",
        "target-database.password": "if DM's `dmctl encrypt` made it",
        "meta": "no effect with task-mode: all",
    }.items():
        assert says in told[key], key
    for silent in ("name", "shard-mode", "mydumpers.global.threads", "mysql-instances[1].mydumper-thread"):
        assert silent not in told


def test_the_merge_of_two_instances() -> None:
    file = task("task-shard-merge.yaml")
    one, two = file.to_subtasks()
    two.source_id = one.source_id
    assert one == two
    assert not file.notes
    assert list(one.ignore_checking_items) == ["auto_increment_ID"]
    rules = Rules.from_config(one)
    targets = {
        (schema, table): rules.route(schema, table)
        for schema, tables in (
            ("user", ("information", "log_bak")),
            ("store_01", ("sale_01", "sale_02")),
            ("store_02", ("sale_01", "sale_02")),
        )
        for table in tables
    }
    reached = {(route.target_schema, route.target_table) for route in targets.values() if route is not None}
    assert reached == {("user", "information"), ("store", "sale")}
    assert [names for names, route in targets.items() if route is None] == [("user", "log_bak")]
    assert [list(each.events) for each in one.event_filters] == [
        ["drop database"],
        ["truncate table", "drop table", "delete"],
    ]


def test_column_mappings_of_dm_1() -> None:
    file = task("task-column-mapping.yaml")
    one, two = file.to_subtasks()
    assert one.shard_mode == pb.SHARD_MODE_PESSIMISTIC  # is-sharding: true
    assert [list(each.column_mappings[0].arguments) for each in (one, two)] == [
        ["1", "test", "t", "_"],
        ["2", "test", "t", "_"],
    ]
    assert list(one.block_allow_list.do_dbs) == ["~^test_"]
    assert notes(file)["black-white-list"] == "old spelling of block-allow-list"
    assert "start-task --remove-meta" in notes(file)["remove-meta"]
    assert "heartbeat table" in notes(file)["enable-heartbeat"]


def test_the_source() -> None:
    text = (FOLDER / "source.yaml").read_text()
    model, findings = check_source(read(text, "source.yaml"), {})
    assert isinstance(model, SourceModel)
    assert not findings
    [rule] = model.filters
    assert rule.sql_pattern == ("alter table .* add column `aaa` int",)
    found = parse_source_file(text.partition("filters:")[0], "source.yaml", {})
    config = found.config
    assert (config.source_id, config.flavor, config.server_id) == ("mysql-replica-01", "auto", 0)
    assert not config.enable_gtid
    assert config.purge == pb.PurgeConfig(interval_seconds=3600, expires_hours=0, remain_space_gib=15)
    assert [note.split(": ", 2)[1] for note in found.notes] == ["enable-relay", "relay-dir", "checker", "from.password"]


@pytest.mark.parametrize("kind", [MasterFile, WorkerFile])
def test_files_of_the_daemons(kind: type[MasterFile] | type[WorkerFile]) -> None:
    name = "dm-master.toml" if kind is MasterFile else "dm-worker.toml"
    text = (FOLDER / name).read_text()
    with pytest.raises(ShardmergeError, match="address-open-to-others"):
        read_daemon(kind, text, name)
    given = read_daemon(kind, f"insecure = true\n{text}", name)
    assert given.model.name == ("dm-master" if kind is MasterFile else "worker1")
    assert given.model.listening == (":8261" if kind is MasterFile else ":8262")
    assert given.model.advertise_addr == f"127.0.0.1{given.model.listening}"
    assert given.model.log_file.endswith(".log")
    told = {note.split(": ")[1]: note for note in given.notes}
    expected = ["peer-urls", "advertise-peer-urls", "initial-cluster", "join"]
    assert list(told) == (expected if kind is MasterFile else ["join", "relay-keepalive-ttl"])
    assert "etcd" in told["join"]
    if isinstance(given.model, WorkerFile):
        assert (given.model.keepalive_ttl, given.model.relay_dir) == (60, "relay_log")
    else:
        assert isinstance(given.model, MasterFile)
        assert given.model.secret_key_path == "/path/to/secret/key"
    tls = 'ssl-ca = "/path/to/ca.pem"\nssl-cert = "/path/to/cert.pem"\nssl-key = "/k"\ncert-allowed-cn = ["dm"]\n'
    assert tls_of(read_daemon(kind, text + tls, name).model) == Tls(
        TlsFiles("/path/to/ca.pem", "/path/to/cert.pem", "/k"), ("dm",)
    )


def test_places_in_toml() -> None:
    text = 'name = "a"\n[experimental]\nopenapi = 5\n\n[nope]\nx = 1\n'
    found = [str(each) for each in check_text(text, "m.toml", FileKind.MASTER).findings]
    assert found == ["m.toml:3:11: experimental.openapi: must be true or false", "m.toml:5:1: nope: unknown key"]
    [broken] = check_text("name = \n", "m.toml", FileKind.MASTER).findings
    assert str(broken) == "m.toml:1:8: not TOML: Invalid value"
