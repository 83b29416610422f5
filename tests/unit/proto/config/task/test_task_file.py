"""Task files: what DM's keys become, what is refused and where, what is noted."""

from __future__ import annotations

import pytest

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto import errors, networks
from shardmerge.proto.config import defaults
from shardmerge.proto.config.secrets import variables
from shardmerge.proto.config.task.cross_checks import CHECKING_ITEMS
from shardmerge.proto.config.task.task_file import TaskFile, parse_task, with_ends
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.proto.networks import Networks
from shardmerge.worker.verify.precheck.findings import DESCRIPTIONS
from tests.unit.proto.config.samples import TASK


def task(text: str, environ: dict[str, str] | None = None) -> TaskFile:
    return parse_task(text, "task.yaml", environ or {})


def refused(text: str, spec: ErrorSpec = errors.config.INVALID) -> str:
    with pytest.raises(ShardmergeError) as caught:
        task(text)
    assert caught.value.spec is spec, caught.value
    return caught.value.message


def changed(old: str, new: str) -> str:
    assert TASK.count(old) >= 1
    return TASK.replace(old, new, 1)


def line_of(text: str, needle: str) -> int:
    return text[: text.index(needle)].count("\n") + 1


def test_every_field_of_the_subtasks() -> None:
    file = task(TASK)
    assert file.name == "merge"
    assert file.source_ids == ("mysql-01", "mysql-02")
    one, two = file.to_subtasks()
    route = pb.RouteRule(name="r1", schema_pattern="s_*", table_pattern="t_*", target_schema="s", target_table="t")
    assert one == pb.SubTaskConfig(
        task="merge",
        source_id="mysql-01",
        mode=pb.TASK_MODE_ALL,
        meta_schema="dm_meta",
        target=pb.Endpoint(host="10.0.0.9", port=4000, user="root", password="p: w"),
        start={},
        block_allow_list=pb.BlockAllowList(name="shards", do_dbs=["s_*"]),
        routes=[route, pb.RouteRule(name="r2", schema_pattern="s_*", target_schema="s")],
        column_mappings=[
            pb.ColumnMappingRule(
                name="m1",
                schema_pattern="s_*",
                table_pattern="t_*",
                source_column="id",
                target_column="id",
                expression="partition id",
                arguments=["1", "s", "t", "_"],
            )
        ],
        snapshot=pb.SnapshotConfig(threads=8, chunk_rows=1000, position="auto"),
        load=pb.LoadConfig(defer_indexes=True),
        replicate=pb.ReplicateConfig(lanes=4, batch_rows=500, batch_bytes=8388608),
        online_ddl=pb.OnlineDdl(shadow_tables=["^_(.+)_(?:new|gho)$"], trash_tables=["^_(.+)_(?:ghc|del|old)$"]),
        auto_increment=pb.AUTO_INCREMENT_KEEP,
        extract_in_key=pb.EXTRACT_IN_KEY_AUTO,
    )
    assert list(two.routes) == [route]
    assert not two.column_mappings
    assert two.snapshot == pb.SnapshotConfig(threads=4, chunk_rows=8096, position="auto")
    assert two.replicate == pb.ReplicateConfig(lanes=2, batch_rows=20_000, batch_bytes=8388608)


def test_own_blocks_win_over_dms() -> None:
    own = (
        "snapshot: {threads: 3, chunk-rows: 7, position: watermark, rows-per-second: 20, bytes-per-second: 30, "
        "max-threads-running: 40, max-replica-lag: 50}\n"
        "load: {defer-indexes: false}\n"
        "replicate: {lanes: 9, batch-rows: 5, batch-bytes: 6, on-row-error: quarantine}\n"
    )
    one, _ = task(TASK + own).to_subtasks()
    assert one.snapshot == pb.SnapshotConfig(
        threads=3,
        chunk_rows=7,
        position="watermark",
        rows_per_second=20,
        bytes_per_second=30,
        max_threads_running=40,
        max_replica_lag=50,
    )
    assert not one.load.defer_indexes
    assert one.replicate == pb.ReplicateConfig(lanes=9, batch_rows=5, batch_bytes=6, quarantine=True)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("created", pb.LoadConfig(defer_indexes=True)),
        ("empty", pb.LoadConfig(defer_indexes=True, defer_existing=True)),
        ("never", pb.LoadConfig()),
        # The setting was a switch before.
        ("true", pb.LoadConfig(defer_indexes=True)),
        ("'yes'", pb.LoadConfig(defer_indexes=True)),
        ("false", pb.LoadConfig()),
        ("off", pb.LoadConfig()),
    ],
)
def test_whose_indexes_are_deferred(value: str, expected: pb.LoadConfig) -> None:
    for one in task(TASK + f"load: {{defer-indexes: {value}}}\n").to_subtasks():
        assert one.load == expected


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("online-ddl: false\n", None),
        ("online-ddl: false\nshadow-table-rules: [^s_(.+)$]\n", None),
        ("online-ddl: false\nonline-ddl-scheme: pt\n", (["^_(.+)_(?:new|gho)$"], ["^_(.+)_(?:ghc|del|old)$"])),
        ("shadow-table-rules: [^s_(.+)$, ^(.+)_s$]\n", (["^s_(.+)$", "^(.+)_s$"], ["^_(.+)_(?:ghc|del|old)$"])),
        ("trash-table-rules: [^t_(.+)$]\n", (["^_(.+)_(?:new|gho)$"], ["^t_(.+)$"])),
    ],
)
def test_which_tables_are_of_online_schema_changes(keys: str, expected: tuple[list[str], list[str]] | None) -> None:
    for one in task(TASK + keys).to_subtasks():
        assert one.HasField("online_ddl") == (expected is not None)
        if expected is not None:
            assert (list(one.online_ddl.shadow_tables), list(one.online_ddl.trash_tables)) == expected


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ("[^_.+_gho$]", "needs a group"),
        ('["("]', "not a regular expression: missing )"),
    ],
)
@pytest.mark.parametrize("key", ["shadow-table-rules", "trash-table-rules"])
def test_a_rule_for_online_schema_changes_yields_the_tables_own_name(key: str, rules: str, says: str) -> None:
    found = refused(TASK + f"{key}: {rules}\n")
    assert f"{key}[0]" in found and says in found


def test_thread_keys_win_over_blocks_and_inline_blocks_work() -> None:
    text = changed(
        "    route-rules:\n      - r1\n",
        "    route-rules: [r1]\n    mydumper: {threads: 2}\n    mydumper-thread: 6\n"
        "    syncer: {safe-mode: true}\n    syncer-thread: 3\n",
    )
    _, two = task(text).to_subtasks()
    assert two.snapshot.threads == 6
    assert two.replicate.lanes == 3
    assert two.replicate.safe_mode


def test_meta_counts_for_incremental_only() -> None:
    meta = "    meta: {binlog-name: mysql-bin.000002, binlog-pos: 120, binlog-gtid: 0-1-5}\n"
    text = changed("    route-rules: [r1, r2]\n", "    route-rules: [r1, r2]\n" + meta)
    file = task(text)
    assert not file.to_subtasks()[0].HasField("start") or not file.to_subtasks()[0].start.file
    assert any("meta: no effect with task-mode: all" in note for note in file.notes)
    one, two = task(text.replace("task-mode: all", "task-mode: incremental")).to_subtasks()
    assert (one.start.file, one.start.pos, one.start.gtid_set) == ("mysql-bin.000002", 120, "0-1-5")
    assert two.start.file == ""
    assert "needs binlog-name, binlog-gtid or start-at" in refused(
        text.replace("binlog-name", "binlog-pos", 1).replace(
            "binlog-pos: mysql-bin.000002, binlog-pos: 120, binlog-gtid: 0-1-5", "binlog-pos: 120"
        )
    )


def test_a_start_and_an_end_beside_places() -> None:
    one = "    meta: {start-at: 2026-01-02 03:04:05}\n    stop-at: mysql-bin.000003:4711\n"
    text = changed("    route-rules: [r1, r2]\n", "    route-rules: [r1, r2]\n" + one)
    text = text.replace("task-mode: all", "task-mode: incremental")
    first, second = task(text).to_subtasks()
    assert first.start_at.time == "2026-01-02 03:04:05"
    assert (first.stop_at.position.file, first.stop_at.position.pos) == ("mysql-bin.000003", 4711)
    assert not second.HasField("start_at") and not second.HasField("stop_at")
    first, second = with_ends(task(text), "earliest", "0-1-5,1-2-3").to_subtasks()
    assert first.start_at.earliest and second.start_at.earliest
    assert {first.stop_at.position.gtid_set, second.stop_at.position.gtid_set} == {"0-1-5,1-2-3"}
    assert "start-at contradicts" in refused(text.replace("{start-at", "{binlog-name: mysql-bin.000002, start-at"))
    assert "tomorrow is no start" in refused(text.replace("2026-01-02 03:04:05", "tomorrow"))
    assert "mysql-bin.000003 is no end" in refused(text.replace("000003:4711", "000003"))
    assert "does not replicate" in refused(text.replace("task-mode: incremental", "task-mode: full"))


@pytest.mark.parametrize(
    ("mode", "start", "stop", "spec"),
    [
        ("all", "earliest", "", errors.config.START_OF_SNAPSHOT),
        ("full", "", "2026-01-02 03:04:05", errors.config.STOP_OF_FULL),
        ("incremental", "2026-01-02", "", errors.config.START_UNREADABLE),
        ("incremental", "", "earliest", errors.config.STOP_UNREADABLE),
    ],
)
def test_a_start_and_an_end_that_cannot_be(mode: str, start: str, stop: str, spec: ErrorSpec) -> None:
    file = task(changed("task-mode: all", f"task-mode: {mode}"))
    with pytest.raises(ShardmergeError) as raised:
        with_ends(file, start, stop)
    assert raised.value.spec is spec


def test_null_values_count_as_absent() -> None:
    text = changed("mydumpers:\n  global:\n    threads: 8\n    rows: 1000\n", "mydumpers:\n  global:\n")
    one, _ = task(text + "timezone:\nfilters:\nexperimental:\n").to_subtasks()
    assert one.snapshot.threads == 4


def test_password_references() -> None:
    text = changed('"p: w"', "${DM_PW_OF_TARGET}")
    assert task(text, {"DM_PW_OF_TARGET": "x"}).to_subtasks()[0].target.password == "x"
    assert parse_task(text, "f", None).to_subtasks()[0].target.password == "${DM_PW_OF_TARGET}"
    message = refused(text, errors.config.SECRET_MISSING)
    assert "task.yaml:7:13: target-database.password: environment variable DM_PW_OF_TARGET is not set" in message


@pytest.mark.parametrize("name", ["PATH", "AWS_SECRET_ACCESS_KEY", "XDM_PASSWORD", "dm_password"])
def test_variables_that_no_file_may_name(name: str) -> None:
    text = changed('"p: w"', f"${{{name}}}")
    with pytest.raises(ShardmergeError) as caught:
        task(text, {name: "its value"})
    assert caught.value.spec is errors.config.VARIABLE_NOT_ALLOWED
    assert f"task.yaml:7:13: target-database.password: files may not name the variable {name}" in caught.value.message
    assert "its value" not in caught.value.message and "env-prefixes" in caught.value.workaround
    # Whether it is set is not told either.
    assert refused(text, errors.config.VARIABLE_NOT_ALLOWED) == caught.value.message
    assert [note for note in parse_task(text, "f", None).notes if name in note and "env-prefixes" in note]


def test_prefixes_of_variables() -> None:
    text = changed('"p: w"', "${OURS_PW}")
    try:
        variables.use(("OURS_", "DM_"))
        assert task(text, {"OURS_PW": "x"}).to_subtasks()[0].target.password == "x"
        assert not [note for note in parse_task(text, "f", None).notes if "OURS_PW" in note]
        variables.use(())
        refused(changed('"p: w"', "${DM_PW}"), errors.config.VARIABLE_NOT_ALLOWED)
    finally:
        variables.use(defaults.ENV_PREFIXES)


def test_addresses_that_the_master_does_not_allow() -> None:
    assert "10.0.0.9" in TASK
    try:
        networks.use(Networks.of(("192.0.2.0/24", "db-1.internal")))
        message = refused(TASK, errors.config.HOST_NOT_ALLOWED)
        assert "target-database.host: 10.0.0.9 is not among the allowed-networks of dm-master: 192.0.2.0/24" in message
        # Of a name its addresses tell, which the worker looks up.
        task(TASK.replace("10.0.0.9", "db-2.internal"))
        parse_task(TASK, "f", None)
        networks.use(Networks.of(("10.0.0.9",)))
        task(TASK)
    finally:
        networks.use(None)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("task-mode: all", "task-mod: all", "task-mod: unknown key; did you mean task-mode?"),
        ("task-mode: all", "task-mode: al", "task-mode: must be one of 'full', 'incremental', 'all'"),
        ("    threads: 8", "    thread: 8", "mydumpers.global.thread: unknown key; did you mean threads?"),
        ("    threads: 8", "    threads: many", "mydumpers.global.threads: must be a whole number"),
        ("    do-dbs: [s_*]", "    do-db: [s_*]", "block-allow-list.shards.do-db: unknown key; did you mean do-dbs?"),
        ("[r1, r2]", "[r1, r3]", "mysql-instances[0].route-rules[1]: there is no r3 in routes"),
        ("[r1, r2]", "[r1, r2, r1]", "mysql-instances[0].route-rules[2]: r1 is listed twice"),
        ("[r1, r2]", "[r1]", "routes.r2: is used by no source of the task"),
        ("[m1]", "[]", "column-mappings.m1: is used by no source of the task"),
        ("mysql-02", "mysql-01", "source mysql-01 is listed twice, see line 9"),
        ("block-allow-list: shards\n    route-rules: [", "block-allow-list: shrds\n    route-rules: [",
         "did you mean shards"),
        ("    syncer-config-name: global", "    syncer-config-name: global\n    syncer: {}",
         "is set together with syncer-config-name"),
        ("    batch: 500", "    batch: 500\n    safe-mode: true\n    safe-mode-duration: 0s", "contradicts"),
        ("do-dbs: [s_*]", "do-dbs: [s_*x]", "pattern 's_*x': * is only allowed at the end"),
        ("do-dbs: [s_*]", "do-dbs: ['~(']", "not a regular expression"),
        (
            "    target-schema: s\n",
            "    target-schema: s\n    extract-schema: {schema-regexp: '~s_(.*)', target-column: c}\n",
            "without ~",
        ),
        ("schema-pattern: s_*\n    table", "schema-pattern: '[b-a]'\n    table", "the range b-a is empty"),
        ("target-schema: s\n    target", "target-schema: dm_meta\n    target", "is the task's meta schema"),
        ("target-schema: s\n    target", "target-schema: mysql\n    target", "is a system schema"),
        ('["1", "s", "t", "_"]', '["16", "s", "t"]', "the instance number must be 0 to 15"),
        ('["1", "s", "t", "_"]', '["1", "s"]', "needs 3 or 4 arguments"),
        ('["1", "s", "t", "_"]', '["", "", ""]', "needs an instance number, a schema prefix or a table prefix"),
        ("source-column: id", "source-column: no", "must be the same column"),
        ("name: merge", "name: a/b", "must not hold /"),
        ("name: merge", "name: merge\nignore-checking-items: [versoin]", "did you mean version?"),
        ("name: merge", "x: 1", "name: required key is missing"),
        ("  port: 4000", "  port: 70000", "target-database.port: must be at most 65535"),
        ("name: merge", "name: merge\nstrict-optimistic-shard-mode: true", "needs shard-mode: optimistic"),
        ("  host: 10.0.0.9", "  host: 10.0.0.9\n  session: [a]", "target-database.session: must be a mapping"),
    ],
)  # fmt: skip
def test_wrong_files_are_refused_with_a_place(old: str, new: str, says: str) -> None:
    message = refused(changed(old, new))
    assert says in message
    assert message.startswith("task.yaml:")


def test_places_are_lines_and_columns_of_the_file() -> None:
    text = changed("    threads: 8", "    thread: 8")
    assert f"task.yaml:{line_of(text, 'thread: 8')}:5: mydumpers.global.thread" in refused(text)
    text = changed("[r1, r2]", "[r1, zz]")
    assert f"task.yaml:{line_of(text, 'zz')}:23: mysql-instances[0].route-rules[1]" in refused(text)


def test_all_findings_are_reported_at_once() -> None:
    text = changed("    threads: 8", "    thread: 8").replace("port: 4000", "port: x").replace("batch: 500", "bach: 5")
    message = refused(text)
    assert "(and 2 more: " in message
    assert all(key in message for key in ("mydumpers.global.thread", "target-database.port", "syncers.global.bach"))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("    rows: 1000", "    where: id > 5", "mydumpers.global.where: the history would hold fewer rows"),
        ("    rows: 1000", '    extra-args: "--consistency none --filter a.b"', "--filter is refused: it may select"),
        ("task-mode: all", "task-mode: dump", "task-mode: dump is not supported: there are no files"),
    ],
)  # fmt: skip
def test_what_would_change_data_is_refused(old: str, new: str, says: str) -> None:
    text = changed(old, new)
    assert says in refused(text, errors.config.NOT_SUPPORTED)


@pytest.mark.parametrize("mode", ["", "\nshard-mode: pessimistic", "\nshard-mode: optimistic"])
def test_transforms_go_with_every_shard_mode(mode: str) -> None:
    rules = "transforms: {t: {schema-pattern: s, filter: a = 1}}"
    text = changed("    column-mapping-rules:", "    transform-rules: [t]\n    column-mapping-rules:")
    text = text.replace("name: merge", f"name: merge\n{rules}{mode}", 1)
    assert [rule.filter for rule in task(text).to_subtasks()[0].transforms] == ["a = 1"]


def test_common_dm_keys_are_accepted_with_notes() -> None:
    text = TASK + (
        "shard-mode: pessimistic\nis-sharding: true\nonline-ddl: true\ntimezone: Asia/Shanghai\n"
        "clean-dump-file: true\nenable-heartbeat: false\ncollation_compatible: strict\nremove-meta: false\n"
        "experimental: {async-checkpoint-flush: true}\nansi-quotes: false\nonline-ddl-scheme: gh-ost\n"
    )
    text = text.replace(
        "    rows: 1000", '    rows: 1000\n    chunk-filesize: "64"\n    extra-args: "--consistency none"'
    )
    notes = task(text).notes
    assert (
        f"line {line_of(text, 'timezone')}: timezone: no effect: both sides always use UTC, so that a TIMESTAMP"
        in "\n".join(notes)
    )
    assert any("mydumpers.global.chunk-filesize" in note for note in notes)
    assert not any("shard-mode" in note for note in notes)
    optimistic = task(text.replace("shard-mode: pessimistic\nis-sharding: true", "shard-mode: optimistic")).notes
    assert not any("shard-mode" in note for note in optimistic)
    numbers = [int(note.split()[1].rstrip(":")) for note in notes]
    assert numbers == sorted(numbers)


def test_sources_that_share_an_instance_number_are_noted() -> None:
    text = changed("    route-rules:\n      - r1\n", "    route-rules: [r1]\n    column-mapping-rules: [m1]\n")
    shared = [note for note in task(text).notes if "share the instance number 1 in partition id" in note]
    assert len(shared) == 1
    assert "mysql-01, mysql-02" in shared[0]
    assert not [note for note in task(TASK).notes if "share the instance number" in note]


def test_every_check_can_be_ignored() -> None:
    assert DESCRIPTIONS.keys() | {"all"} == CHECKING_ITEMS


def test_old_spelling_of_the_block_allow_list() -> None:
    one, two = task(TASK.replace("block-allow-list", "black-white-list")).to_subtasks()
    assert one.block_allow_list.name == two.block_allow_list.name == "shards"


def test_messages_never_hold_the_password() -> None:
    text = changed('password: "p: w"', "password: [hidden-thing]")
    assert "hidden-thing" not in refused(text)
    assert "p: w" not in repr(task(TASK))
    assert "of-the-environment" not in repr(task(TASK, {"PW": "of-the-environment"}))


def test_tls_keys() -> None:
    given = "  port: 4000\n  security: {ssl-ca: /ca, ssl-cert: /cert, ssl-key: /key, cert-allowed-cn: [a, b]}"
    for subtask in task(changed("  port: 4000", given)).to_subtasks():
        assert subtask.target.tls == pb.Tls(ca="/ca", cert="/cert", key="/key", allowed_cn=["a", "b"])
    assert "ssl-cert without ssl-key" in refused(changed("  port: 4000", "  port: 4000\n  security: {ssl-cert: /cert}"))
