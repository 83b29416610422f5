"""Tests a TiDB target: kills under load, types, planted differences, transactions that are too large.

It has a world of its own: sources of both kinds, and TiDB.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardmerge.proto import errors
from tests.integration.ways_out.printed import Operator
from tests.support import all_types, judge
from tests.support.cluster import SubTask
from tests.support.database import Database
from tests.support.judge import Shard, Target
from tests.support.kills import VICTIMS, kill_at_each, kill_while_copying, kill_while_replicating, locks_of
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.tidb import TiDB
from tests.support.wait import until
from tests.support.world import World

pytestmark = pytest.mark.tidb


@pytest.fixture(scope="module")
def module_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("tidb"), sources=(MariaDB, MySQL), targets=(TiDB,))
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.mark.parametrize("victim", ["target"])
def test_kill_while_replicating(world: World, victim: str) -> None:
    kill_while_replicating(world, victim)


@pytest.mark.grid
@pytest.mark.parametrize("victim", [name for name in VICTIMS if name != "target"])
def test_kill_any_while_replicating(world: World, victim: str) -> None:
    kill_while_replicating(world, victim)


_TEXTS = {
    "latin1": "ÄÖÜß€ÿ x",
    "latin2": "ąłŻ",
    "cp1251": "Привет",
    "greek": "αβγ",
    "gbk": "你好縗",
    "big5": "你好",
    "sjis": "日本語ｱ",
    "ujis": "日本語",
    "euckr": "한국어",
    "ucs2": "ÄЖ你",
    "utf16": "😀你ß",
    "utf32": "😀",
    "utf8mb3": "ß你",
    "utf8mb4": "😀 e\u0301",
    "ascii": "~ plain",
}
_CREATE_TEXTS = (
    "CREATE TABLE {table} (id INT PRIMARY KEY, "
    + ", ".join(f"c_{name} VARCHAR(20) CHARACTER SET {name}, t_{name} TEXT CHARACTER SET {name}" for name in _TEXTS)
    + ", b VARBINARY(20), e ENUM('ä','ß') CHARACTER SET latin1, s SET('ü','x') CHARACTER SET latin1)"
)
_TEXT_ROW = ", ".join(f"'{text}', '{text}{text}'" for text in _TEXTS.values()) + ", X'00FFDF', 'ß', 'ü,x'"


def _own_task(world: World, name: str, more: str = "", rules: str = "") -> str:
    """A task of both sources, without routes: a schema ``<name>_<n>`` on source n. ``rules``: further keys of each
    mysql-instance."""
    instances = "".join(
        f"  - {{source-id: {source_id}, block-allow-list: own{rules}}}\n" for source_id, _ in world.sources
    )
    return (
        f"name: {name}\ntask-mode: all\nmeta-schema: dm_meta\n"
        f"target-database: {{host: 127.0.0.1, port: {world.target.port}, user: root, password: ''}}\n"
        f"mysql-instances:\n{instances}block-allow-list: {{own: {{do-dbs: ['{name}_*']}}}}\n{more}"
    )


def test_text_is_what_a_client_reads(world: World) -> None:
    """Text of every character set, copied and streamed, and in a column that a statement adds."""
    for number, (_, server) in enumerate(world.sources, 1):
        table = f"tidb_text_{number}.t"
        server.execute(
            f"CREATE DATABASE tidb_text_{number} CHARACTER SET big5",
            _CREATE_TEXTS.format(table=table),
            f"INSERT INTO {table} VALUES (1, {_TEXT_ROW})",
            f"CREATE TABLE tidb_text_{number}.k (k VARCHAR(20) CHARACTER SET latin1 PRIMARY KEY, n INT)",
            f"INSERT INTO tidb_text_{number}.k VALUES ('ä', 1), ('ö', 2)",
            f"CREATE TABLE tidb_text_{number}.c (id INT PRIMARY KEY, t TEXT NOT NULL, s TINYTEXT COMMENT 'ß') "
            "CHARSET=latin1",
            f"INSERT INTO tidb_text_{number}.c VALUES (1, 'é', 'é')",
        )
    world.cluster.start_task(_own_task(world, "tidb_text"))
    world.cluster.wait_replicating("tidb_text")
    for number, (_, server) in enumerate(world.sources, 1):
        table = f"tidb_text_{number}.t"
        server.execute(
            f"INSERT INTO {table} VALUES (2, {_TEXT_ROW})",
            f"UPDATE {table} SET c_latin1 = 'ß', t_big5 = '好' WHERE id = 1",
            f"ALTER TABLE {table} ADD added VARCHAR(9), ADD other VARCHAR(9) CHARACTER SET sjis NOT NULL DEFAULT '本'",
            f"UPDATE {table} SET added = '你' WHERE id = 2",
            f"UPDATE tidb_text_{number}.k SET n = 3 WHERE k = 'ä'",
            f"DELETE FROM tidb_text_{number}.k WHERE k = 'ö'",
            f"UPDATE tidb_text_{number}.k SET k = 'ß' WHERE k = 'ä'",
            # The source's texts become longer ones.
            f"ALTER TABLE tidb_text_{number}.c CONVERT TO CHARACTER SET utf8mb4",
            f"INSERT INTO tidb_text_{number}.c VALUES (2, REPEAT('😀', 20000), REPEAT('好', 255))",
        )
    world.settle(["tidb_text"])
    for number, (_, server) in enumerate(world.sources, 1):
        _assert_equal(server, world.target, f"tidb_text_{number}", "t", ("id",))
        _assert_equal(server, world.target, f"tidb_text_{number}", "k", ("k",))
        _assert_equal(server, world.target, f"tidb_text_{number}", "c", ("id",))
    compared = world.cluster.compare("tidb_text")
    assert (compared.answer.code, compared.lines) == (0, []), compared.answer.text
    world.cluster.dmctl("stop-task", "tidb_text")


def _assert_equal(source: Database, target: Database, schema: str, table: str, key: tuple[str, ...]) -> None:
    """A client reads the same rows at both."""
    found = judge.compare([Shard(source.connect, schema, table)], Target(target.connect, schema, table), key=key)
    assert found.differences == 0, found
    assert found.rows > 0


# TiDB has no GEOMETRY, and no TIME beyond 838:59:59.
_ALL_TYPES = all_types.CREATE.replace(",\n  p GEOMETRY", "")
_BEYOND = ("838:59:59.", "POINT", "LINESTRING")


def test_all_types(world: World) -> None:
    """The edges of all types, copied and streamed. TiDB has no negative zero, and writes JSON in its own order."""
    rows = [row for row in all_types.INSERTS if not any(part in row for part in _BEYOND)]
    assert len(rows) == len(all_types.INSERTS) - 4
    for number, (_, server) in enumerate(world.sources, 1):
        schema = f"tidb_types_{number}"
        server.execute(
            f"CREATE DATABASE {schema}",
            "SET sql_mode = ''",
            *(_ALL_TYPES.replace("d.all_types", f"{schema}.{name}") for name in ("copied", "streamed")),
            *(row.replace("d.all_types", f"{schema}.copied") for row in rows),
            f"CREATE TABLE {schema}.j (id INT PRIMARY KEY, j JSON)",
            f'INSERT INTO {schema}.j VALUES (1, \'{{"bb": 1, "a": [1.5, true, null, "ß"], "c": -0.1}}\')',
        )
    world.cluster.start_task(_own_task(world, "tidb_types"))
    world.cluster.wait_replicating("tidb_types")
    for number, (_, server) in enumerate(world.sources, 1):
        schema = f"tidb_types_{number}"
        server.execute(
            "SET sql_mode = ''",
            *(row.replace("d.all_types", f"{schema}.streamed") for row in rows),
            *(change.replace("d.all_types", f"{schema}.copied") for change in all_types.CHANGES),
            f"INSERT INTO {schema}.j SELECT 2, j FROM {schema}.j",
        )
    world.settle(["tidb_types"])
    for number, (_, server) in enumerate(world.sources, 1):
        for name in ("copied", "streamed"):
            _assert_equal(server, world.target, f"tidb_types_{number}", name, ("id",))
    compared = world.cluster.compare("tidb_types")
    assert (compared.answer.code, compared.lines) == (0, []), compared.answer.text
    world.cluster.dmctl("stop-task", "tidb_types")


# As DM's manual writes such a task: "Task Configuration File", "Table Routing".
_DM_TASK = """\
name: "tidb_dm"
task-mode: "all"
shard-mode: "pessimistic"
meta-schema: "dm_meta"
timezone: "UTC"
case-sensitive: false
online-ddl: true
clean-dump-file: true
collation_compatible: "loose"
target-database:
  host: "127.0.0.1"
  port: {port}
  user: "root"
  password: ""
  session:
    tidb_skip_utf8_check: 1
    tidb_constraint_check_in_place: 0
mysql-instances:
{instances}
routes:
  all-shards:
    schema-pattern: "tidb_dm_*"
    table-pattern: "t_*"
    target-schema: "tidb_dm"
    target-table: "t"
    extract-table: {{table-regexp: "t_(.*)", target-column: "c_table"}}
    extract-schema: {{schema-regexp: "tidb_dm_(.*)", target-column: "c_schema"}}
    extract-source: {{source-regexp: "mysql-(.*)", target-column: "c_source"}}
block-allow-list:
  own:
    do-dbs: ["tidb_dm_*"]
mydumpers:
  global: {{threads: 2, chunk-filesize: "64", extra-args: "--consistency none"}}
loaders:
  global: {{pool-size: 2, dir: "./dumped_data", import-mode: "logical", on-duplicate-logical: "replace"}}
syncers:
  global: {{worker-count: 2, batch: 100, enable-ansi-quotes: true, safe-mode: false, multiple-rows: true}}
"""
_ROW = "'Straße', '{{\"b\": 1, \"a\": 2}}', 0.1, '0000-00-00', X'61', ''"
_PLANTED = (
    "UPDATE tidb_dm.t SET v = 'Strae' WHERE id = 1 AND c_source = '01'",  # a letter that latin1 has
    "UPDATE tidb_dm.t SET v = 'Straße ' WHERE id = 2 AND c_source = '01'",
    "UPDATE tidb_dm.t SET v = 'straße' WHERE id = 3 AND c_source = '01'",
    "DELETE FROM tidb_dm.t WHERE id = 4 AND c_source = '01'",
    "INSERT INTO tidb_dm.t SELECT 99, v, j, d, z, b, n, c_table, c_schema, c_source FROM tidb_dm.t "
    "WHERE id = 5 AND c_source = '02'",
    "UPDATE tidb_dm.t SET d = 0.10000000000000002 WHERE id = 6 AND c_source = '02'",
    "UPDATE tidb_dm.t SET j = '{\"a\": 2, \"b\": 1}' WHERE id = 7 AND c_source = '01'",  # a text at this source
    "UPDATE tidb_dm.t SET z = '2000-00-00' WHERE id = 8 AND c_source = '02'",
    "UPDATE tidb_dm.t SET b = X'6100' WHERE id = 9 AND c_source = '02'",
    "UPDATE tidb_dm.t SET n = NULL WHERE id = 10 AND c_source = '02'",
)


def test_a_task_file_of_dm_and_ten_planted_differences(world: World) -> None:
    """A task file of DM merges latin1 shards with extracted columns; the comparison finds each difference."""
    for number, (_, server) in enumerate(world.sources, 1):
        server.execute(
            f"CREATE DATABASE tidb_dm_{number} CHARACTER SET latin1",
            "SET sql_mode = ''",
            f"CREATE TABLE tidb_dm_{number}.t_1 (id INT PRIMARY KEY, v VARCHAR(20), j LONGTEXT, d DOUBLE, z DATE, "
            "b VARBINARY(9), n VARCHAR(9)) CHARSET=latin1",
            *(f"INSERT INTO tidb_dm_{number}.t_1 VALUES ({row}, {_ROW.format()})" for row in range(1, 8)),
        )
    instances = "\n".join(
        f'  - {{source-id: "{source_id}", block-allow-list: "own", route-rules: ["all-shards"], '
        'mydumper-config-name: "global", loader-config-name: "global", syncer-config-name: "global"}'
        for source_id, _ in world.sources
    )
    world.cluster.start_task(_DM_TASK.format(port=world.target.port, instances=instances))
    world.cluster.wait_replicating("tidb_dm")
    for number, (_, server) in enumerate(world.sources, 1):
        server.execute(
            "SET sql_mode = ''",
            *(f"INSERT INTO tidb_dm_{number}.t_1 VALUES ({row}, {_ROW.format()})" for row in range(8, 11)),
        )
    world.settle(["tidb_dm"])
    assert world.target.query("SELECT COUNT(*), COUNT(DISTINCT v), MIN(HEX(v)) FROM tidb_dm.t") == [
        (20, 1, "Straße".encode().hex().upper())
    ]
    compared = world.cluster.compare("tidb_dm")
    assert (compared.answer.code, compared.lines) == (0, []), compared.answer.text
    world.target.execute("SET sql_mode = 'ALLOW_INVALID_DATES'", *_PLANTED)
    compared = world.cluster.compare("tidb_dm", check=False)
    assert compared.answer.code == 1, compared.answer.text
    found = sorted((str(line["kind"]), int(line["key"]["id"])) for line in compared.lines)
    assert found == sorted([("missing", 4), ("extra", 99), *(("different", row) for row in (1, 2, 3, 6, 7, 8, 9, 10))])
    compared = world.cluster.compare("tidb_dm", "--repair")
    assert compared.total("repaired") == len(_PLANTED), compared.answer.text
    compared = world.cluster.compare("tidb_dm")
    assert (compared.answer.code, compared.lines) == (0, []), compared.answer.text
    world.cluster.dmctl("stop-task", "tidb_dm")


def test_what_tidb_refuses_and_the_printed_ways_out(world: World) -> None:
    """A type that it lacks, a character set in a lock of shard tables, and a row that is too long."""
    source_id, source = world.sources[0]
    source.execute("CREATE DATABASE tidb_out_1")
    for number in (1, 2):
        source.execute(
            f"CREATE TABLE tidb_out_1.t_{number} (id INT PRIMARY KEY, v LONGTEXT, p POINT) CHARSET=latin1",
            f"INSERT INTO tidb_out_1.t_{number} VALUES ({number}, 'é', NULL)",
        )
    task = world.cluster.write(
        "tidb_out.yaml",
        "\n".join(
            (
                "name: tidb_out",
                "task-mode: all",
                "shard-mode: pessimistic",
                "meta-schema: dm_meta",
                f"target-database: {{host: 127.0.0.1, port: {world.target.port}, user: root, password: ''}}",
                f"mysql-instances: [{{source-id: {source_id}, block-allow-list: own, route-rules: [own]}}]",
                "block-allow-list: {own: {do-dbs: [tidb_out_1]}}",
                "routes: {own: {schema-pattern: tidb_out_1, target-schema: tidb_out, target-table: t, "
                'table-pattern: "t_*"}}',
                "",
            )
        ),
    )
    operator = Operator(world.cluster, "tidb_out", task)
    assert "p (point)" in operator.refused(12099, "start-task", task).message
    source.execute("ALTER TABLE tidb_out_1.t_1 DROP p", "ALTER TABLE tidb_out_1.t_2 DROP p")
    world.cluster.dmctl("start-task", task)
    world.cluster.wait_replicating("tidb_out")
    for number in (1, 2):
        source.execute(
            f"ALTER TABLE tidb_out_1.t_{number} ADD c VARCHAR(9) CHARACTER SET big5",
            f"INSERT INTO tidb_out_1.t_{number} VALUES ({10 + number}, 'ß', '你好')",
        )
    replacement = "ALTER TABLE tidb_out_1.t_1 ADD c VARCHAR(9) CHARACTER SET utf8mb4"
    operator.runs(operator.stopped(50068), "binlog replace", statement=replacement)
    until(lambda: ".`t_2`" in operator.stopped(50068).message, "the second shard table stops, too")
    operator.runs(operator.stopped(50068), "binlog skip")
    source.execute("INSERT INTO tidb_out_1.t_1 VALUES (21, REPEAT('x', 6500000), NULL), (22, 'é', '好')")
    refused = operator.stopped(40060)
    assert "`id` = 21" in refused.message
    world.target.execute("SET GLOBAL tidb_txn_entry_size_limit = 7500000")
    operator.runs(refused, "resume-task")
    world.settle(["tidb_out"])
    world.target.execute("SET GLOBAL tidb_txn_entry_size_limit = 0")
    compared = world.cluster.compare("tidb_out")
    assert (compared.answer.code, compared.lines, compared.rows) == (0, [], 6), compared.answer.text
    world.cluster.dmctl("stop-task", "tidb_out")


# A moment, and who is killed then.
_COPYING = {
    "snapshot.after_select": "target",
    "snapshot.before_commit": "target",
    "snapshot.after_commit": "tasks",
    "handover": "target",
}


def test_kill_at_moments_of_a_snapshot(world: World) -> None:
    kill_while_copying(world, "tidb", _COPYING)


def test_a_transaction_that_is_too_large_is_repeated_in_smaller_ones(world: World) -> None:
    """TiDB ends it with error 8175 when its memory limit is reached: a chunk of the history, and changes."""
    source_id, source = world.sources[0]
    source.execute(
        "CREATE DATABASE tidb_large",
        "CREATE TABLE tidb_large.t (id INT PRIMARY KEY, v VARCHAR(2000)) CHARSET=utf8mb4",
        "CREATE TABLE tidb_large.h (k VARCHAR(20) PRIMARY KEY, v VARCHAR(2000)) CHARSET=utf8mb4",
        "INSERT INTO tidb_large.h SELECT CONCAT('k', seq), REPEAT('x', 1500) FROM tidb_large.seq_1_to_9000",
    )
    task = "\n".join(
        (
            "name: tidb_large",
            "task-mode: all",
            "meta-schema: dm_meta",
            f"target-database: {{host: 127.0.0.1, port: {world.target.port}, user: root, password: '', "
            "session: {tidb_mem_quota_query: 8000000}}",
            "mysql-instances:",
            f"  - {{source-id: {source_id}, block-allow-list: own}}",
            "block-allow-list: {own: {do-dbs: [tidb_large]}}",
            "",
        )
    )
    world.cluster.start_task(task)
    world.cluster.wait_replicating("tidb_large")
    chunks = world.target.query(
        "SELECT number, state, row_count FROM dm_meta.snapshot_chunk "
        "WHERE task = 'tidb_large' AND row_count > 0 ORDER BY 1"
    )
    assert [number for number, _, _ in chunks] == list(range(len(chunks)))
    assert all(state == 1 and int(str(count)) < 3000 for _, state, count in chunks), chunks
    assert world.target.query("SELECT COUNT(*), SUM(LENGTH(v)) FROM tidb_large.h") == [(9000, 9000 * 1500)]
    source.execute(
        "UPDATE tidb_large.h SET v = k WHERE k LIKE 'k12%'",
        "INSERT INTO tidb_large.t SELECT seq, REPEAT('x', 1000) FROM tidb_large.seq_1_to_20000",
        "UPDATE tidb_large.t SET v = CONCAT(v, id)",
    )
    world.settle(["tidb_large"])
    assert world.target.query("SELECT COUNT(*), SUM(v = CONCAT(REPEAT('x', 1000), id)) FROM tidb_large.t") == [
        (20000, 20000)
    ]
    _assert_equal(source, world.target, "tidb_large", "h", ("k",))
    logs = b"".join(worker.log.read_bytes() for worker in world.cluster.workers)
    assert errors.replicate.TARGET_TRANSACTION_TOO_LARGE.name.encode() in logs
    world.cluster.dmctl("stop-task", "tidb_large")


_IN_PARTS = {
    # The columns take each other's names, in a lock.
    "pessimistic": "CHANGE a b INT, CHANGE b a BIGINT, ADD c INT NOT NULL DEFAULT 7, ADD INDEX i (c)",
    # A schema join.
    "optimistic": "ADD c INT NOT NULL DEFAULT 7, ADD INDEX i (c), DROP INDEX k, ADD INDEX k (b), MODIFY a BIGINT",
}
_MOMENTS = (("ddl.begun", "worker"), ("ddl.run", "target"), ("ddl.part_recorded", "worker"))


@pytest.mark.parametrize("mode", _IN_PARTS)
def test_a_sharding_ddl_in_parts(world: World, mode: str) -> None:
    """TiDB does not run the statement as a whole; processes are killed within it."""
    name = f"tidb_{mode}"
    for number, (_, server) in enumerate(world.sources, 1):
        server.execute(
            f"CREATE DATABASE {name}_{number}",
            f"CREATE TABLE {name}_{number}.t (id INT PRIMARY KEY, a INT, b BIGINT, KEY k (a))",
            f"INSERT INTO {name}_{number}.t VALUES ({number}, 1, 2), ({number}0, 3, 4)",
        )
    route = f"schema-pattern: '{name}_*', table-pattern: t, target-schema: {name}, target-table: t"
    more = f"shard-mode: {mode}\nroutes: {{merge: {{{route}}}}}\n"
    world.cluster.start_task(_own_task(world, name, more, ", route-rules: [merge]"))
    world.cluster.wait_replicating(name)
    world.cluster.hooks.hold(_MOMENTS[0][0])
    for number, (_, server) in enumerate(world.sources, 1):
        server.execute(
            f"ALTER TABLE {name}_{number}.t {_IN_PARTS[mode]}",
            f"INSERT INTO {name}_{number}.t (id, a, b) VALUES ({number}00, 5, 6)",
            f"UPDATE {name}_{number}.t SET c = a + 1 WHERE id = {number}0",
        )
    kill_at_each(
        world,
        _MOMENTS,
        lambda: world.cluster.dmctl("resume-task", name, check=False),
        of_owner=[moment for moment, _ in _MOMENTS],
    )
    until(lambda: locks_of(world, name) == [], "there is no lock any more", 300)
    world.settle([name])
    query = "SELECT id, a, b, c FROM {}.t ORDER BY id"
    rows = [
        row
        for number, (_, server) in enumerate(world.sources, 1)
        for row in server.query(query.format(f"{name}_{number}"))
    ]
    assert world.target.query(query.format(name)) == sorted(rows)
    [(own, text)] = world.sources[0][1].query(f"SHOW CREATE TABLE {name}_1.t")
    [(_, merged)] = world.target.query(f"SHOW CREATE TABLE {name}.t")
    for index in ("KEY `i` (`c`)", "KEY `k` (`b`)"):
        assert index in str(text), own
        assert index in str(merged)
    assert world.target.query(f"SELECT * FROM dm_meta.statement_begun WHERE task = '{name}'") == []
    world.cluster.dmctl("stop-task", name)


def test_ways_out_of_a_refused_part(world: World) -> None:
    """The error names the parts; the task continues with the refused one, or with an operator's statements."""
    name, code = "tidb_refused", errors.ddl.DDL_PART_REFUSED.code
    source_id, source = world.sources[0]
    source.execute(
        f"CREATE DATABASE {name}_1",
        f"CREATE TABLE {name}_1.t (id INT PRIMARY KEY, b INT, n INT)",
        f"INSERT INTO {name}_1.t VALUES (1, 1, 1), (2, 2, 2)",
    )
    rules = f"block-allow-list: {{own: {{do-dbs: [{name}_1]}}}}\n"
    world.cluster.start_task("\n".join((*world.head_of_task(name, "route-rules: []"), rules)))
    world.cluster.wait_replicating(name)

    def refused(added: str, column: str) -> str:
        world.target.execute(f"INSERT INTO {name}_1.t (id, {column}) VALUES (9, 2)")
        indexes = f"ADD INDEX i_{added} ({added}), ADD UNIQUE u_{added} ({column})"
        source.execute(f"ALTER TABLE {name}_1.t ADD {added} INT, {indexes}")

        def stops(sub: SubTask) -> bool:
            return sub.stage == "Paused" and code in dict(sub.errors)

        found = world.cluster.wait_subtasks(name, stops, f"stops with {code}")
        return dict(found[source_id].errors)[code]

    message = refused("c", "b")
    assert f"Parts that have run: ALTER TABLE `{name}_1`.`t` ADD c INT. Parts that have not run: " in message
    world.target.execute(f"DELETE FROM {name}_1.t WHERE id = 9")
    world.cluster.dmctl("resume-task", name, "-s", source_id)
    source.execute(f"INSERT INTO {name}_1.t VALUES (3, 3, 3, 4)")
    world.settle([name])
    refused("d", "n")
    world.cluster.dmctl(
        "binlog",
        "replace",
        name,
        f"ALTER TABLE {name}_1.t ADD INDEX i_d (d), ADD e INT, ADD INDEX (e)",
        "-s",
        source_id,
    )
    world.target.execute(f"DELETE FROM {name}_1.t WHERE id = 9")
    source.execute(f"INSERT INTO {name}_1.t VALUES (4, 4, 4, 5, 6)")
    world.cluster.dmctl("resume-task", name, "-s", source_id, check=False)
    world.settle([name])
    assert world.target.query(f"SELECT id, b, n, c, d FROM {name}_1.t ORDER BY id") == source.query(
        f"SELECT * FROM {name}_1.t ORDER BY id"
    )
    assert (
        len(world.target.query(f"SHOW INDEX FROM {name}_1.t WHERE Key_name IN ('i_c', 'u_c', 'i_d', 'u_d', 'e')")) == 4
    )
    assert world.target.query(f"SELECT * FROM dm_meta.statement_begun WHERE task = '{name}'") == []
    world.cluster.dmctl("stop-task", name)
