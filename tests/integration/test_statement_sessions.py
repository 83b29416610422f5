"""Tests that a DDL has its meaning at the target whatever session ran it at the source, also while the task lags."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors.spec import ErrorSpec
from shardmerge.worker.binlog.rows.charsets import charset_of_id
from shardmerge.worker.ddl.sql.column_definition import first_collation
from shardmerge.worker.unit.contract import Failed
from tests.integration.lane_rig import LaneRig, Run
from tests.integration.snapshot_rig import subtask_config
from tests.support.database import Database
from tests.support.pair import KINDS, emptied
from tests.support.wait import until

SCHEMA = "shard"
_PAIRS = [(one, other) for one in KINDS for other in KINDS]
_NOT_COMPARED = re.compile(r" AUTO_INCREMENT=\d+| CHARACTER SET \w+(?= COLLATE)")
"""MySQL prints the character set of a collation only if a statement has named it."""


@pytest.fixture(scope="module")
def all_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Database]]:
    folder = tmp_path_factory.mktemp("sessions")
    made = {
        (name, side): kind(folder / f"{side}-{name}", number)
        for name, kind in KINDS.items()
        for number, side in ((101, "source"), (201, "target"))
    }
    try:
        for server in made.values():
            server.start()
        yield made
    finally:
        for server in made.values():
            server.stop()


Ends = Callable[[str, str], tuple[Database, Database]]


@pytest.fixture
def ends(all_servers: dict[tuple[str, str], Database]) -> Ends:
    """Return the source and the target of these kinds, emptied; the source has the schema."""

    def pick(source_kind: str, target_kind: str) -> tuple[Database, Database]:
        source, target = emptied(all_servers[source_kind, "source"]), emptied(all_servers[target_kind, "target"])
        source.execute(f"CREATE DATABASE {SCHEMA} CHARACTER SET utf8mb4")
        return source, target

    return pick


@contextmanager
def lagging(source: Database, target: Database, folder: Path, *statements: str) -> Generator[Run]:
    """Run ``statements`` in one session of the schema, and only then the task, from before them."""
    with LaneRig(source, target, folder, subtask_config(target)) as rig:
        run_in(source, *statements)
        run = rig.replicate(1)
        try:
            yield run
        finally:
            if not run.ended:
                run.stop()


def run_in(source: Database, *statements: str) -> None:
    connection = source.connect(SCHEMA)
    try:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
    finally:
        connection.close()


def shown(server: Database, table: str) -> str:
    """The table's definition as its server prints it."""
    return _NOT_COMPARED.sub("", str(server.query(f"SHOW CREATE TABLE {SCHEMA}.{table}")[0][1]))


def described(server: Database, table: str) -> list[tuple[object, ...]]:
    """What servers of both kinds describe alike."""
    return server.query(
        "SELECT column_name, REPLACE(data_type, 'json', 'longtext'), character_set_name, "
        "character_maximum_length, datetime_precision, is_nullable "
        f"FROM information_schema.columns WHERE table_schema = '{SCHEMA}' AND table_name = '{table}' "
        "ORDER BY ordinal_position"
    )


def values(server: Database, table: str, columns: str) -> list[tuple[object, ...]]:
    listed = ", ".join(f"HEX({column.strip()})" for column in columns.split(","))
    return server.query(f"SELECT {listed} FROM {SCHEMA}.{table} ORDER BY 1")


def same(source: Database, target: Database, table: str, columns: str) -> None:
    assert values(target, table, columns) == values(source, table, columns)
    assert described(target, table) == described(source, table)
    if source.flavor == target.flavor:
        assert shown(target, table) == shown(source, table)


def stopped(run: Run, spec: ErrorSpec) -> str:
    """Wait until the run has stopped with this error; return its message."""
    until(lambda: run.ended, "the run has stopped")
    outcome = run.join()
    assert isinstance(outcome, Failed), outcome
    assert outcome.error.spec is spec, outcome.error
    return outcome.error.message


@pytest.mark.parametrize(("source_kind", "target_kind"), _PAIRS)
def test_the_default_of_a_schema_at_the_time_of_a_statement(
    source_kind: str, target_kind: str, ends: Ends, tmp_path: Path
) -> None:
    source, target = ends(source_kind, target_kind)
    by_name = "CHARSET=DEFAULT" if source_kind == "mariadb" else ""
    with lagging(
        source,
        target,
        tmp_path,
        f"ALTER DATABASE {SCHEMA} DEFAULT CHARACTER SET latin1",
        "CREATE TABLE y (id INT PRIMARY KEY, d VARCHAR(20))",
        "INSERT INTO y VALUES (1, 'Ã©'), (2, 'é')",
        f"CREATE TABLE named (id INT PRIMARY KEY, d VARCHAR(20)) {by_name}",
        "INSERT INTO named VALUES (1, 'Ã©'), (2, 'é')",
        "CREATE TABLE converted (id INT PRIMARY KEY, d VARCHAR(20)) CHARSET=cp1251",
        "INSERT INTO converted VALUES (1, 'a')",
        "ALTER TABLE converted CONVERT TO CHARACTER SET DEFAULT",
        "INSERT INTO converted VALUES (2, 'é')",
        f"ALTER DATABASE {SCHEMA} DEFAULT CHARACTER SET utf8mb4",
        "CREATE TABLE z (id INT PRIMARY KEY, d VARCHAR(20))",
        "INSERT INTO z VALUES (1, 'Ã©'), (2, 'é')",
    ) as run:
        run.until_synced()
        for table in ("y", "named", "converted", "z"):
            same(source, target, table, "id, d")
    [(charset,)] = target.query(
        "SELECT character_set_name FROM information_schema.columns WHERE table_name = 'y' AND column_name = 'd'"
    )
    assert charset == "latin1"


@pytest.mark.parametrize("kind", KINDS)
def test_the_default_that_the_keyword_means(kind: str, ends: Ends, tmp_path: Path) -> None:
    """Servers differ in whose default CHARACTER SET DEFAULT is: the source's result counts."""
    source, target = ends(kind, kind)
    source.execute("CREATE DATABASE other CHARACTER SET cp1251 COLLATE cp1251_bin")
    convert = f"ALTER TABLE {SCHEMA}.{{}} CONVERT TO CHARACTER SET DEFAULT"
    with lagging(
        source,
        target,
        tmp_path,
        f"ALTER DATABASE {SCHEMA} CHARACTER SET latin1 COLLATE latin1_bin",
        *(f"CREATE TABLE {name} (id INT PRIMARY KEY, d VARCHAR(20)) CHARSET = greek" for name in ("a", "b", "c")),
        f"USE {SCHEMA}",
        convert.format("a"),
        "USE other",
        convert.format("b"),
        "SET collation_database = koi8r_bin",
        convert.format("c"),
    ) as run:
        run.until_synced()
        for table in ("a", "b", "c"):
            same(source, target, table, "id, d")


@pytest.mark.parametrize("kind", KINDS)
def test_a_default_that_is_not_known_stops_the_task(kind: str, ends: Ends, tmp_path: Path) -> None:
    source, target = ends(kind, kind)
    with lagging(
        source,
        target,
        tmp_path,
        "CREATE TABLE y (id INT PRIMARY KEY, d VARCHAR(20))",
        "INSERT INTO y VALUES (1, 'Ω')",
        f"ALTER DATABASE {SCHEMA} DEFAULT CHARACTER SET latin1",
    ) as run:
        message = stopped(run, errors.ddl.SCHEMA_DEFAULT_UNKNOWN)
    assert f"schema {SCHEMA} had" in message and "CREATE TABLE y" in message


@pytest.mark.parametrize("kind", KINDS)
def test_another_schema_of_the_session(kind: str, ends: Ends, tmp_path: Path) -> None:
    """A table has the default of its own schema, not that of the session's, and not collation_database."""
    source, target = ends(kind, kind)
    source.execute("CREATE DATABASE other CHARACTER SET cp1251")
    with lagging(
        source,
        target,
        tmp_path,
        "USE other",
        "SET collation_database = latin2_bin",
        f"CREATE TABLE {SCHEMA}.y (id INT PRIMARY KEY, d VARCHAR(20))",
        f"INSERT INTO {SCHEMA}.y VALUES (1, 'Ω')",
    ) as run:
        run.until_synced()
        same(source, target, "y", "id, d")


def test_an_empty_string_that_is_null(ends: Ends, tmp_path: Path) -> None:
    source, target = ends("mariadb", "mariadb")
    with lagging(
        source,
        target,
        tmp_path,
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "SET sql_mode = 'EMPTY_STRING_IS_NULL'",
        "ALTER TABLE t ADD q VARCHAR(10) DEFAULT ''",
        "INSERT INTO t (id) VALUES (2)",
    ) as run:
        run.until_synced()
        same(source, target, "t", "id, q")
    assert target.query(f"SELECT q FROM {SCHEMA}.t") == [(None,), (None,)]


@pytest.mark.parametrize(
    ("mode", "clause"),
    [("EMPTY_STRING_IS_NULL", "ADD q VARCHAR(10) DEFAULT ''"), ("ORACLE", "ADD q DATE"), ("MAXDB", "ADD q TIMESTAMP")],
)
def test_a_mode_that_the_target_lacks(mode: str, clause: str, ends: Ends, tmp_path: Path) -> None:
    source, target = ends("mariadb", "mysql")
    with lagging(
        source,
        target,
        tmp_path,
        "CREATE TABLE t (id INT PRIMARY KEY)",
        f"SET sql_mode = '{mode}'",
        "ALTER TABLE t ADD x INT" if mode == "EMPTY_STRING_IS_NULL" else "DROP TABLE IF EXISTS none",
        f"ALTER TABLE t {clause}",
    ) as run:
        message = stopped(run, errors.ddl.SETTING_NOT_AT_TARGET)
    assert f"sql_mode={mode}" in message and clause in message


@pytest.mark.turns
def test_a_timestamp_that_a_statement_does_not_name(ends: Ends, tmp_path: Path) -> None:
    """MySQL logs explicit_defaults_for_timestamp only for statements that declare a TIMESTAMP; others depend on it."""
    source, target = ends("mysql", "mysql")
    made = "(id INT PRIMARY KEY, a TIMESTAMP NOT NULL, b TIMESTAMP NOT NULL)"
    changes = ("ALTER b SET DEFAULT '2020-01-02'", "MODIFY a INT", "COMMENT = 'x'", "ADD z TIMESTAMP", "ADD KEY (a)")
    with lagging(
        source,
        target,
        tmp_path,
        "SET sql_mode = ''",
        *(f"CREATE TABLE {'off' if number else 'on'}{at} {made}" for at in range(len(changes)) for number in (0, 1)),
        *(f"ALTER TABLE on{at} {change}" for at, change in enumerate(changes)),
        "SET explicit_defaults_for_timestamp = 0",
        *(f"ALTER TABLE off{at} {change}" for at, change in enumerate(changes)),
        "CREATE TABLE implied (id INT PRIMARY KEY, a TIMESTAMP DEFAULT '2020-01-01', b TIMESTAMP)",
        "ALTER TABLE implied ALTER a DROP DEFAULT",
    ) as run:
        run.until_synced()
        for name in ("implied", *(f"{one}{at}" for at in range(len(changes)) for one in ("on", "off"))):
            assert shown(target, name) == shown(source, name)
    assert "ON UPDATE" in shown(source, "off0") and "ON UPDATE" not in shown(source, "on0")


def test_a_timestamp_that_a_later_statement_changes(ends: Ends, tmp_path: Path) -> None:
    """What the source's table is now does not show which of two statements has changed it."""
    source, target = ends("mysql", "mysql")
    made = "(id INT PRIMARY KEY, a TIMESTAMP NOT NULL)"
    with lagging(
        source,
        target,
        tmp_path,
        "SET sql_mode = ''",
        f"CREATE TABLE replaced {made}",
        "ALTER TABLE replaced ADD x INT",
        "CREATE TABLE copied LIKE replaced",
        "DROP TABLE replaced",
        "CREATE TABLE replaced (id INT PRIMARY KEY, other TIMESTAMP NOT NULL)",
        f"CREATE TABLE t {made}",
        "ALTER TABLE t ADD x INT",
        "SET explicit_defaults_for_timestamp = 0",
        "ALTER TABLE t ADD y INT",
        "ALTER TABLE replaced ADD z INT",
    ) as run:
        message = stopped(run, errors.ddl.SETTING_NOT_AT_TARGET)
        assert shown(target, "copied") == shown(source, "copied")
        assert "ON UPDATE" not in shown(target, "t") and "ON UPDATE" in shown(source, "t")
    assert "explicit_defaults_for_timestamp" in message and "column a" in message and "ADD x INT" in message


def test_a_timestamp_that_mariadb_treats_as_it_likes(ends: Ends, tmp_path: Path) -> None:
    source, target = ends("mariadb", "mariadb")
    with lagging(
        source,
        target,
        tmp_path,
        "CREATE TABLE t (id INT PRIMARY KEY, a TIMESTAMP NOT NULL)",
        "ALTER TABLE t ADD x INT",
        "SET explicit_defaults_for_timestamp = 0",
        "CREATE TABLE implied (id INT KEY, a TIMESTAMP, b TIMESTAMP)",
        "ALTER TABLE implied ADD c TIMESTAMP, MODIFY b TIMESTAMP NULL",
        "ALTER TABLE t ADD z TIMESTAMP",
    ) as run:
        message = stopped(run, errors.ddl.SETTING_NOT_AT_TARGET)
        assert shown(target, "implied") == shown(source, "implied")
    assert "column a, a TIMESTAMP without a default" in message and "ADD z TIMESTAMP" in message


def test_a_geometry_that_no_statement_has_given(ends: Ends, tmp_path: Path) -> None:
    """The target refuses the empty value; after the row at the source is corrected, the copy continues."""
    source, target = ends("mariadb", "mariadb")
    run_in(
        source,
        "SET sql_mode = ''",
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "ALTER TABLE t ADD p POINT NOT NULL",
    )
    config = subtask_config(target)
    with LaneRig(source, target, tmp_path, config) as rig:
        message = stopped(rig.begin(config), errors.replicate.TARGET_REJECTED)
        assert "errno 1416" in message
        run_in(source, "UPDATE t SET p = POINT(1, 2) WHERE id = 1")
        run = rig.begin(config)
        run.until_joined(target)
        run.stop()
    same(source, target, "t", "id, p")


def test_a_check_that_is_added_if_its_name_is_new(ends: Ends, tmp_path: Path) -> None:
    """Checks of a new target have names that its server makes: only the source knows whether the name is new."""
    source, target = ends("mariadb", "mariadb")
    with lagging(
        source,
        target,
        tmp_path,
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, CONSTRAINT x CHECK (a > 0))",
        "ALTER TABLE t ADD CONSTRAINT y CHECK (a < 1000), ADD COLUMN IF NOT EXISTS a INT CHECK (a > 7)",
        "ALTER TABLE t ADD CONSTRAINT IF NOT EXISTS x CHECK (a < 100)",
    ) as run:
        message = stopped(run, errors.ddl.CHECK_BY_NAME)
    assert "IF NOT EXISTS x" in message
    assert shown(target, "t").count("CHECK") == shown(source, "t").count("CHECK") == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_that_gives_timestamps_defaults(kind: str, ends: Ends, tmp_path: Path) -> None:
    source, target = ends(kind, kind)
    made = "(id INT PRIMARY KEY, a TIMESTAMP NOT NULL, b TIMESTAMP NOT NULL)"
    run_in(source, f"CREATE TABLE copied {made}", "INSERT INTO copied VALUES (1, NOW(), NOW())")
    target.execute("SET GLOBAL explicit_defaults_for_timestamp = 0")
    try:
        config = subtask_config(target)
        with LaneRig(source, target, tmp_path, config) as rig:
            run = rig.begin(config)
            run.until_joined(target)
            run_in(source, f"CREATE TABLE made {made}", "ALTER TABLE made ADD c INT", "ALTER TABLE copied ADD c INT")
            run_in(source, "INSERT INTO made VALUES (1, NOW(), NOW(), 2)")
            run.until_synced()
            run.stop()
    finally:
        target.execute("SET GLOBAL explicit_defaults_for_timestamp = 1")
    for name in ("copied", "made"):
        same(source, target, name, "id, a, b, c")


@pytest.mark.parametrize("target_kind", KINDS)
def test_the_default_collation_of_utf8mb4(target_kind: str, ends: Ends, tmp_path: Path) -> None:
    source, target = ends("mysql", target_kind)
    with lagging(
        source,
        target,
        tmp_path,
        "CREATE TABLE t (id INT PRIMARY KEY) COLLATE = latin1_bin",
        "SET default_collation_for_utf8mb4 = 'utf8mb4_general_ci'",
        "ALTER TABLE t ADD c VARCHAR(20) CHARACTER SET utf8mb4, ADD UNIQUE KEY (c)",
        "INSERT INTO t VALUES (1, 'ß'), (2, 'ss')",
        "CREATE TABLE made (id INT PRIMARY KEY, c VARCHAR(20), UNIQUE KEY (c)) CHARSET = utf8mb4",
        "INSERT INTO made VALUES (1, 'ß'), (2, 'ss')",
        f"ALTER DATABASE {SCHEMA} CHARACTER SET utf8mb4",
        "CREATE TABLE inherited (id INT PRIMARY KEY, c VARCHAR(20), UNIQUE KEY (c))",
        "INSERT INTO inherited VALUES (1, 'ß'), (2, 'ss')",
    ) as run:
        run.until_synced()
        for table in ("t", "made", "inherited"):
            same(source, target, table, "id, c")
            [(collation,)] = target.query(
                "SELECT collation_name FROM information_schema.columns "
                f"WHERE table_schema = '{SCHEMA}' AND table_name = '{table}' AND column_name = 'c'"
            )
            assert collation == "utf8mb4_general_ci"


def test_the_types_of_oracle(ends: Ends, tmp_path: Path) -> None:
    source, target = ends("mariadb", "mariadb")
    with lagging(
        source,
        target,
        tmp_path,
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "SET sql_mode = ORACLE",
        "ALTER TABLE t ADD d DATE",
        "ALTER TABLE t ADD n NUMBER(10,2), ADD r RAW(16), ADD c CLOB, ADD v VARCHAR2(20) DEFAULT ('x' || 'y')",
        "INSERT INTO t VALUES (2, '2026-01-02 03:04:05', 1.25, 'ab', 'text', 'v')",
        "CREATE TABLE made (id NUMBER(5) PRIMARY KEY, d DATE, c CLOB)",
        "INSERT INTO made VALUES (2, '2026-01-02 03:04:05', 'text')",
    ) as run:
        run.until_synced()
        same(source, target, "t", "id, d, n, r, c, v")
        same(source, target, "made", "id, d, c")


@pytest.mark.parametrize("metadata", ["MINIMAL", "FULL"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_character_set_that_no_statement_has_shown(kind: str, metadata: str, ends: Ends, tmp_path: Path) -> None:
    """A change of the schema that the source has not logged: the rows contradict the known structure."""
    source, target = ends(kind, kind)
    [(former,)] = source.query("SELECT @@GLOBAL.binlog_row_metadata")
    try:
        with LaneRig(source, target, tmp_path, subtask_config(target)) as rig:
            source.execute(f"SET GLOBAL binlog_row_metadata = {metadata}")
            run = rig.replicate(1)
            run_in(source, "CREATE TABLE first (id INT PRIMARY KEY, a TEXT, b VARCHAR(9), c ENUM('ä'))")
            run_in(source, "INSERT INTO first VALUES (1, 'é', 'é', 'ä')")
            run.until_synced()
            same(source, target, "first", "id, a, b, c")
            run_in(
                source,
                "SET sql_log_bin = 0",
                "ALTER TABLE first MODIFY b VARCHAR(9) CHARACTER SET latin1",
                "SET sql_log_bin = 1",
                "INSERT INTO first VALUES (2, 'é', 'Ã©', 'ä')",
            )
            message = stopped(run, errors.decode.STRUCTURE_MISMATCH)
    finally:
        source.execute(f"SET GLOBAL binlog_row_metadata = {former}")
    assert "column b has character set latin1 there" in message and "utf8mb4 in the known structure" in message
    assert target.query(f"SELECT id FROM {SCHEMA}.first") == [(1,)]


def test_a_type_that_no_statement_has_shown(ends: Ends, tmp_path: Path) -> None:
    source, target = ends("mariadb", "mariadb")
    with lagging(
        source,
        target,
        tmp_path,
        "CREATE TABLE t (id INT PRIMARY KEY, d DATE)",
        "SET sql_log_bin = 0",
        "ALTER TABLE t MODIFY d DATETIME",
        "SET sql_log_bin = 1",
        "INSERT INTO t VALUES (1, '2026-01-02 03:04:05')",
        # Without a later statement the first one would stop: 50072.
        "ALTER TABLE t COMMENT 'later'",
    ) as run:
        message = stopped(run, errors.decode.STRUCTURE_MISMATCH)
    assert "column d is DATETIME there (type code 18), and date in the known structure" in message


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_known_of_collations_is_what_servers_show(kind: str, ends: Ends) -> None:
    server, _ = ends(kind, kind)
    every = "COLLATION_CHARACTER_SET_APPLICABILITY" if kind == "mariadb" else "COLLATIONS"
    shown_ids = server.query(f"SELECT id, character_set_name FROM information_schema.{every} WHERE id IS NOT NULL")
    assert {int(str(number)): charset_of_id(int(str(number))) for number, _ in shown_ids} == {
        int(str(number)): name for number, name in shown_ids
    }
    defaults = server.query("SELECT character_set_name, default_collate_name FROM information_schema.character_sets")
    assert len(defaults) > 35
    for charset, collation in defaults:
        if (kind, charset) != ("mysql", "utf8mb4"):
            assert first_collation(str(charset)) == collation
