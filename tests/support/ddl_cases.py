"""Lists clauses of ALTER TABLE and other DDL from the servers' manuals, and the expected results of reading them."""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.worker.core.sql.clause import ClauseKind

TABLES = (
    "CREATE TABLE p (x INT PRIMARY KEY, y INT UNIQUE)",
    "CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(20) DEFAULT 'x', c INT NOT NULL, g POINT NOT NULL,"
    " d1 DATE NOT NULL, d2 DATE NOT NULL, KEY k (a), KEY k2 (b), CONSTRAINT chk CHECK (a < 100),"
    " CONSTRAINT fk FOREIGN KEY (a) REFERENCES p (x))",
    "CREATE TABLE n (id INT NOT NULL, a INT)",
    "CREATE TABLE e (id INT NOT NULL, a INT)",
    "CREATE TABLE h (id INT NOT NULL, a INT) PARTITION BY HASH (id) PARTITIONS 3",
    "CREATE TABLE r (id INT NOT NULL, a INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10),"
    " PARTITION p1 VALUES LESS THAN (20), PARTITION p2 VALUES LESS THAN (30))",
)
"""Tables that the statements here need to run, in a schema of their own."""

BOTH = frozenset({"mariadb", "mysql"})
MARIADB, MYSQL = frozenset({"mariadb"}), frozenset({"mysql"})
# for reading only: newer or older than the servers of the tests, or executed after another statement
NOWHERE = frozenset[str]()


@dataclass(frozen=True, slots=True)
class Case:
    """A clause for ``table``. ``on``: the flavors of servers that execute it. ``others``: further tables that it
    names."""

    text: str
    kind: ClauseKind
    columns: tuple[str, ...] = ()
    name: str = ""
    new_name: str = ""
    others: tuple[str, ...] = ()
    on: frozenset[str] = BOTH
    table: str = "t"

    @property
    def is_last(self) -> bool:
        """Return whether no other clause can follow."""
        return self.kind in (ClauseKind.ORDER_BY, ClauseKind.PARTITIONING, ClauseKind.PARTITION_ROWS)


def _columns(kind: ClauseKind, text: str, *columns: str, on: frozenset[str] = BOTH, new: str = "") -> Case:
    return Case(text, kind, columns, new_name=new, on=on)


def _refers(text: str, *columns: str, on: frozenset[str] = BOTH) -> Case:
    return Case(text, K.ADD_COLUMN if columns else K.ADD_FOREIGN_KEY, columns, others=("p",), on=on)


K = ClauseKind
CLAUSES = (
    _columns(K.ADD_COLUMN, "ADD COLUMN d INT", "d"),
    _columns(K.ADD_COLUMN, "add d int", "d"),
    _columns(K.ADD_COLUMN, "ADD `index` INT", "index"),
    _columns(K.ADD_COLUMN, "ADD `d, (` INT", "d, ("),
    _columns(K.ADD_COLUMN, "ADD COLUMN `check` INT CHECK (`check` > 0)", "check"),
    _columns(K.ADD_COLUMN, "ADD period INT", "period", on=MYSQL),
    _columns(K.ADD_COLUMN, "ADD `system` INT", "system"),
    _columns(K.ADD_COLUMN, "ADD system INT", "system", on=NOWHERE),
    _columns(K.ADD_COLUMN, "ADD vector INT NULL", "vector"),
    _columns(K.ADD_COLUMN, "ADD exchange INT", "exchange"),
    _columns(K.ADD_COLUMN, "ADD COLUMN IF NOT EXISTS d INT", "d", on=MARIADB),
    _columns(K.ADD_COLUMN, "ADD IF NOT EXISTS d INT", "d", on=MARIADB),
    _columns(K.ADD_COLUMN, "ADD d VARCHAR(9) DEFAULT 'a, (b' COMMENT ') , DROP x' FIRST", "d"),
    _columns(K.ADD_COLUMN, 'ADD d VARCHAR(9) DEFAULT "it\'s, \\"(" AFTER a', "d"),
    _columns(K.ADD_COLUMN, "ADD d INT DEFAULT (1 + (2)) AFTER a", "d"),
    _columns(K.ADD_COLUMN, "ADD d INT GENERATED ALWAYS AS (id * (2 + 1)) VIRTUAL", "d"),
    _columns(K.ADD_COLUMN, "ADD d VARCHAR(9) AS (CONCAT(b, ',', c)) STORED UNIQUE KEY", "d"),
    _columns(K.ADD_COLUMN, "ADD d ENUM('a,b', 'c)') CHARACTER SET latin1", "d"),
    _columns(K.ADD_COLUMN, "ADD d TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP", "d"),
    _columns(K.ADD_COLUMN, "ADD (d INT, e DECIMAL(5, 2))", "d", "e"),
    _columns(K.ADD_COLUMN, "ADD COLUMN (`key` INT, KEY i (`key`), CONSTRAINT dd CHECK (`key` > 0))", "key"),
    _columns(K.ADD_COLUMN, "ADD COLUMN IF NOT EXISTS (d INT, e INT)", "d", "e", on=MARIADB),
    _refers("ADD d INT REFERENCES p (x)", "d"),
    _refers("ADD d INT REFERENCES p (x) MATCH SIMPLE ON DELETE SET NULL ON UPDATE NO ACTION FIRST", "d"),
    _refers("ADD COLUMN d INT CONSTRAINT dfk REFERENCES p (x) AFTER a", "d", on=MARIADB),
    _refers("ADD (d INT REFERENCES p (x), e INT)", "d", "e"),
    _refers("ADD (d INT, CONSTRAINT dfk FOREIGN KEY (d) REFERENCES p (x) ON DELETE CASCADE, KEY i (d))", "d"),
    _columns(K.DROP_COLUMN, "DROP COLUMN b", "b"),
    _columns(K.DROP_COLUMN, "DROP `b`", "b"),
    _columns(K.DROP_COLUMN, "DROP b RESTRICT", "b", on=NOWHERE),
    _columns(K.DROP_COLUMN, "DROP COLUMN IF EXISTS b", "b", on=MARIADB),
    _columns(K.DROP_COLUMN, "DROP period", "period", on=NOWHERE),
    _columns(K.CHANGE_COLUMN, "CHANGE b bb INT", "b", new="bb"),
    _columns(K.CHANGE_COLUMN, "CHANGE COLUMN `b` `key` VARCHAR(5) NOT NULL FIRST", "b", new="key"),
    _columns(K.CHANGE_COLUMN, "CHANGE COLUMN IF EXISTS b bb INT", "b", new="bb", on=MARIADB),
    _columns(K.MODIFY_COLUMN, "MODIFY b VARCHAR(30)", "b"),
    _columns(K.MODIFY_COLUMN, "MODIFY COLUMN c BIGINT NOT NULL DEFAULT 3 COMMENT 'a,b' AFTER id", "c"),
    _columns(K.MODIFY_COLUMN, "MODIFY COLUMN IF EXISTS b INT", "b", on=MARIADB),
    _columns(K.RENAME_COLUMN, "RENAME COLUMN b TO bb", "b", new="bb"),
    _columns(K.RENAME_COLUMN, "RENAME COLUMN IF EXISTS b TO `to`", "b", new="to", on=MARIADB),
    _columns(K.SET_DEFAULT, "ALTER b SET DEFAULT 'y'", "b"),
    _columns(K.SET_DEFAULT, "ALTER COLUMN b SET DEFAULT (UPPER('a'))", "b"),
    _columns(K.SET_DEFAULT, "ALTER COLUMN IF EXISTS b SET DEFAULT 'y'", "b", on=MARIADB),
    _columns(K.DROP_DEFAULT, "ALTER COLUMN b DROP DEFAULT", "b"),
    _columns(K.OTHER, "ALTER COLUMN b SET INVISIBLE", "b", on=MYSQL),
    Case("ADD INDEX i (b, c DESC)", K.ADD_INDEX),
    Case("ADD KEY (b(3))", K.ADD_INDEX),
    Case("ADD INDEX i ((a + c))", K.ADD_INDEX, on=MYSQL),
    Case("ADD FULLTEXT KEY f (b)", K.ADD_INDEX),
    Case("ADD FULLTEXT (b)", K.ADD_INDEX),
    Case("ADD SPATIAL INDEX s (g)", K.ADD_INDEX),
    Case("ADD VECTOR INDEX v (e)", K.ADD_INDEX, on=NOWHERE),
    Case("ADD VECTOR (e)", K.ADD_INDEX, on=NOWHERE),
    Case("ADD INDEX IF NOT EXISTS i (b) USING BTREE COMMENT 'a, b'", K.ADD_INDEX, on=MARIADB),
    Case("ADD UNIQUE (b)", K.ADD_UNIQUE),
    Case("ADD UNIQUE KEY q (b, c)", K.ADD_UNIQUE),
    Case("ADD CONSTRAINT UNIQUE (b)", K.ADD_UNIQUE),
    Case("ADD CONSTRAINT `unique` UNIQUE INDEX (b)", K.ADD_UNIQUE),
    Case("ADD PRIMARY KEY (id)", K.ADD_PRIMARY_KEY, table="n"),
    Case("ADD CONSTRAINT pk PRIMARY KEY (id, a)", K.ADD_PRIMARY_KEY, table="n"),
    Case("DROP PRIMARY KEY", K.DROP_PRIMARY_KEY),
    Case("DROP INDEX k2", K.DROP_INDEX, name="k2"),
    Case("DROP KEY `k2`", K.DROP_INDEX, name="k2"),
    Case("DROP INDEX IF EXISTS k2", K.DROP_INDEX, name="k2", on=MARIADB),
    Case("RENAME INDEX k2 TO k3", K.RENAME_INDEX, name="k2", new_name="k3"),
    Case("RENAME KEY k2 TO `key`", K.RENAME_INDEX, name="k2", new_name="key"),
    Case("ALTER INDEX k2 INVISIBLE", K.ALTER_INDEX, name="k2", on=MYSQL),
    Case("ALTER INDEX k2 IGNORED", K.ALTER_INDEX, name="k2", on=MARIADB),
    Case("ALTER KEY IF EXISTS k2 NOT IGNORED", K.ALTER_INDEX, name="k2", on=MARIADB),
    _refers("ADD FOREIGN KEY (c) REFERENCES p (x)"),
    _refers("ADD CONSTRAINT FOREIGN KEY (c) REFERENCES `p` (x)"),
    _refers("ADD CONSTRAINT f FOREIGN KEY (c) REFERENCES p (x) ON UPDATE CASCADE ON DELETE RESTRICT"),
    _refers("ADD CONSTRAINT f FOREIGN KEY IF NOT EXISTS fi (c) REFERENCES p (x)", on=MARIADB),
    _refers("ADD CONSTRAINT IF NOT EXISTS f FOREIGN KEY (c) REFERENCES p (x)", on=NOWHERE),
    Case("DROP FOREIGN KEY fk", K.DROP_FOREIGN_KEY, name="fk"),
    Case("DROP FOREIGN KEY IF EXISTS `fk`", K.DROP_FOREIGN_KEY, name="fk", on=MARIADB),
    Case("ADD CHECK (c > 0)", K.ADD_CHECK),
    Case("ADD CONSTRAINT `check` CHECK ((c > 0) AND b <> ',(')", K.ADD_CHECK),
    Case("ADD CONSTRAINT CHECK (c > 0) NOT ENFORCED", K.ADD_CHECK, on=MYSQL),
    Case("ADD CONSTRAINT IF NOT EXISTS more CHECK (c > 0)", K.ADD_CHECK, name="more", on=MARIADB),
    Case("DROP CHECK chk", K.DROP_CHECK, name="chk", on=MYSQL),
    Case("DROP CONSTRAINT chk", K.DROP_CONSTRAINT, name="chk"),
    Case("DROP CONSTRAINT IF EXISTS fk", K.DROP_CONSTRAINT, name="fk", on=MARIADB),
    Case("ALTER CHECK chk NOT ENFORCED", K.ALTER_CHECK, name="chk", on=MYSQL),
    Case("ALTER CONSTRAINT chk NOT ENFORCED", K.ALTER_CHECK, name="chk", on=MYSQL),
    Case("RENAME TO t2", K.RENAME_TABLE, others=("t2",)),
    Case("RENAME `t,2`", K.RENAME_TABLE, others=("t,2",)),
    Case("RENAME AS t2", K.RENAME_TABLE, others=("t2",)),
    Case("RENAME = t2", K.RENAME_TABLE, others=("t2",)),
    Case("CONVERT TO CHARACTER SET latin1 COLLATE latin1_bin", K.CONVERT_CHARSET),
    Case("CONVERT TO CHARSET utf8mb4", K.CONVERT_CHARSET),
    Case("COMMENT 'a, b)'", K.OPTION),
    Case("COMMENT = 'it''s, (' AUTO_INCREMENT = 5", K.OPTION),
    Case("DEFAULT CHARSET = latin1 COLLATE = latin1_bin", K.OPTION),
    Case("CHARACTER SET latin1", K.OPTION),
    Case("ENGINE = InnoDB ROW_FORMAT = DYNAMIC", K.OPTION),
    Case("STATS_PERSISTENT 1", K.OPTION),
    Case("PAGE_COMPRESSED = 1", K.OPTION, on=NOWHERE),
    Case("OF_SOME_ENGINE = 1", K.OPTION, on=NOWHERE),
    Case("ORDER BY b, c DESC", K.ORDER_BY),
    Case("PARTITION BY HASH (id) PARTITIONS 2", K.PARTITIONING, table="n"),
    Case(
        "PARTITION BY LIST (id) (PARTITION p0 VALUES IN (1, 2), PARTITION p1 VALUES IN (3))", K.PARTITIONING, table="n"
    ),
    Case("REMOVE PARTITIONING", K.PARTITIONING, table="h"),
    Case(
        "ADD PARTITION (PARTITION p3 VALUES LESS THAN (40), PARTITION p4 VALUES LESS THAN (50))",
        K.PARTITIONING,
        table="r",
    ),
    Case("REORGANIZE PARTITION p0, p1 INTO (PARTITION p9 VALUES LESS THAN (20))", K.PARTITIONING, table="r"),
    Case("COALESCE PARTITION 1", K.PARTITIONING, table="h"),
    Case("REBUILD PARTITION p0, p1", K.PARTITIONING, table="r"),
    Case("ANALYZE PARTITION ALL", K.PARTITIONING, table="r"),
    Case("CHECK PARTITION p0, p1", K.PARTITIONING, table="r"),
    Case("DROP PARTITION p0, p1", K.PARTITION_ROWS, table="r"),
    Case("DROP PARTITION IF EXISTS p0", K.PARTITION_ROWS, table="r", on=MARIADB),
    Case("TRUNCATE PARTITION p0, p2", K.PARTITION_ROWS, table="r"),
    Case("EXCHANGE PARTITION p0 WITH TABLE e", K.PARTITION_ROWS, others=("e",), table="r"),
    Case(
        "EXCHANGE PARTITION p1 WITH TABLE e WITHOUT VALIDATION",
        K.PARTITION_ROWS,
        others=("e",),
        on=MYSQL,
        table="r",
    ),
    Case("CONVERT PARTITION p0 TO TABLE nn", K.PARTITION_ROWS, others=("nn",), on=MARIADB, table="r"),
    Case(
        "CONVERT TABLE e TO PARTITION p9 VALUES LESS THAN (90)", K.PARTITION_ROWS, others=("e",), on=MARIADB, table="r"
    ),
    Case("DISCARD PARTITION p0, p1 TABLESPACE", K.PARTITION_ROWS, table="r", on=NOWHERE),
    Case("DISCARD TABLESPACE", K.PARTITION_ROWS, table="n", on=NOWHERE),
    Case("IMPORT TABLESPACE", K.PARTITION_ROWS, on=NOWHERE),
    Case("ALGORITHM = COPY", K.HOW),
    Case("LOCK DEFAULT", K.HOW),
    Case("FORCE", K.HOW),
    Case("WITHOUT VALIDATION", K.HOW, on=NOWHERE),
    Case("DISABLE KEYS", K.HOW),
    Case("ADD SYSTEM VERSIONING", K.SYSTEM_VERSIONING, table="n", on=MARIADB),
    Case("DROP SYSTEM VERSIONING", K.SYSTEM_VERSIONING, on=NOWHERE),
    Case("ADD PERIOD FOR pp (d1, d2)", K.PERIOD, on=MARIADB),
    Case("DROP PERIOD FOR SYSTEM_TIME", K.PERIOD, on=NOWHERE),
    Case("SECONDARY_LOAD", K.OTHER, on=NOWHERE),
)

ALTERS = (
    ("ALTER ONLINE TABLE t WAIT 3 ADD d INT, DROP b", MARIADB),
    ("ALTER IGNORE TABLE IF EXISTS `t` NOWAIT ADD UNIQUE (a)", MARIADB),
    ("ALTER TABLE n ADD d INT, ALGORITHM=COPY, ADD INDEX (a) PARTITION BY HASH (id)", BOTH),
    ("ALTER TABLE h COMMENT 'x', ADD d INT REMOVE PARTITIONING", BOTH),
    ("ALTER TABLE n ADD d INT /*!50100 PARTITION BY HASH (id) PARTITIONS 2 */", BOTH),
    ("ALTER TABLE n /*!50100 ADD d INT, */ ADD f INT", BOTH),
    ("ALTER TABLE n /*M! ADD d INT, ADD e INT */", MARIADB),
    ("ALTER TABLE /* t2 */ t -- ADD x INT,\n ADD d INT # , DROP a\n, DROP /* , */ COLUMN b", BOTH),
    ("ALTER TABLE t ADD d INT REFERENCES p (x), DROP FOREIGN KEY fk, ADD FOREIGN KEY (c) REFERENCES p (x)", BOTH),
    ("SET STATEMENT lock_wait_timeout = 3 FOR ALTER TABLE t ADD d INT", MARIADB),
    ("ALTER TABLE t", BOTH),
)
"""Whole statements, with the servers that execute them."""

OTHERS = (
    ("CREATE TABLE m (a INT, b INT REFERENCES p (x), FOREIGN KEY (a) REFERENCES p (y))", BOTH),
    ("CREATE TABLE IF NOT EXISTS m (a INT PRIMARY KEY) PARTITION BY HASH (a)", BOTH),
    ("CREATE OR REPLACE TABLE n (a INT)", MARIADB),
    ("CREATE TABLE m LIKE t", BOTH),
    ("CREATE TABLE m (LIKE `h`)", BOTH),
    ("CREATE TABLE m (a INT) COMMENT = 'SELECT' /*!50100 PARTITION BY LIST (a) (PARTITION p VALUES IN (1)) */", BOTH),
    ("CREATE TABLE m (a INT PRIMARY KEY) SELECT 1 AS a", BOTH),
    ("DROP TABLE n, `e`", BOTH),
    ("DROP TABLE IF EXISTS n, nope CASCADE", BOTH),
    ("RENAME TABLE n TO n2, e TO `n`", BOTH),
    ("RENAME TABLE IF EXISTS n WAIT 3 TO n2", MARIADB),
    ("TRUNCATE n", BOTH),
    ("TRUNCATE TABLE r", BOTH),
    ("CREATE UNIQUE INDEX i ON n (id, a) ALGORITHM = COPY LOCK = SHARED", BOTH),
    ("CREATE FULLTEXT INDEX `on` ON t (b)", BOTH),
    ("CREATE INDEX IF NOT EXISTS i USING BTREE ON n (a)", MARIADB),
    ("DROP INDEX k2 ON t", BOTH),
    ("DROP INDEX IF EXISTS `k2` ON t WAIT 3", MARIADB),
)
