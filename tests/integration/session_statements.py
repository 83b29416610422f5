"""Draws DDLs and session settings for test_random_sessions.py: what servers take, and what they refuse."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_MODES = (
    *("REAL_AS_FLOAT", "PIPES_AS_CONCAT", "ANSI_QUOTES", "IGNORE_SPACE", "ONLY_FULL_GROUP_BY", "NO_DIR_IN_CREATE"),
    *("NO_UNSIGNED_SUBTRACTION", "ANSI", "NO_AUTO_VALUE_ON_ZERO", "NO_BACKSLASH_ESCAPES", "STRICT_TRANS_TABLES"),
    *("STRICT_ALL_TABLES", "NO_ZERO_IN_DATE", "NO_ZERO_DATE", "ALLOW_INVALID_DATES", "ERROR_FOR_DIVISION_BY_ZERO"),
    *("TRADITIONAL", "HIGH_NOT_PRECEDENCE", "NO_ENGINE_SUBSTITUTION", "PAD_CHAR_TO_FULL_LENGTH"),
)
_OWN_MODES = {
    "mariadb": (
        *("IGNORE_BAD_TABLE_OPTIONS", "POSTGRESQL", "ORACLE", "MSSQL", "DB2", "MAXDB", "NO_KEY_OPTIONS"),
        *("NO_TABLE_OPTIONS", "NO_FIELD_OPTIONS", "MYSQL323", "MYSQL40", "NO_AUTO_CREATE_USER"),
        *("EMPTY_STRING_IS_NULL", "SIMULTANEOUS_ASSIGNMENT", "TIME_ROUND_FRACTIONAL"),
    ),
    "mysql": ("TIME_TRUNCATE_FRACTIONAL",),
}
_QUOTING = frozenset({"ANSI_QUOTES", "ANSI", "POSTGRESQL", "ORACLE", "MSSQL", "DB2", "MAXDB"})

_CHARSETS = (
    *("utf8mb4", "latin1", "utf8mb3", "utf8", "cp1251", "gbk", "ucs2", "ascii", "binary", "utf16", "utf32", "latin2"),
    *("greek", "hebrew", "koi8r", "sjis", "big5", "euckr", "ujis", "cp932", "utf16le", "latin5", "cp850", "cp1250"),
    *("tis620", "macroman", "geostd8", "armscii8", "swe7", "hp8", "dec8", "keybcs2", "cp852", "gb2312", "eucjpms"),
)
_COLLATIONS = (
    *("utf8mb4_bin", "latin1_swedish_ci", "utf8mb4_unicode_ci", "cp1251_general_cs", "utf8mb3_general_ci"),
    *("utf8mb4_general_ci", "latin1_german2_ci", "utf8mb4_unicode_520_ci", "utf8mb3_unicode_ci", "gbk_bin", "binary"),
    *("utf8mb4_spanish_ci", "utf8mb3_bin", "koi8r_general_ci", "latin2_general_ci", "sjis_japanese_ci", "ascii_bin"),
)
_OWN_COLLATIONS = {
    "mariadb": (
        *("utf8mb4_nopad_bin", "latin1_swedish_nopad_ci", "utf8mb4_uca1400_ai_ci", "utf8mb4_uca1400_swedish_as_cs"),
        *("uca1400_ai_ci", "utf8mb3_uca1400_ai_ci", "utf8mb4_unicode_nopad_ci", "utf8mb4_thai_520_w2"),
    ),
    "mysql": ("utf8mb4_0900_ai_ci", "utf8mb4_0900_bin", "utf8mb4_0900_as_cs", "utf8mb4_ja_0900_as_cs_ks"),
}
_CLIENTS = (
    *("utf8mb4", "utf8mb3", "latin1", "cp1251", "greek", "koi8r", "latin2", "cp1250", "hebrew", "cp850") * 3,
    "binary",
)
_TEXTS = (
    *("VARCHAR(20)", "CHAR(7)", "TEXT", "TINYTEXT", "MEDIUMTEXT", "LONGTEXT", "ENUM('a','é','')", "SET('a','b')"),
    *("NCHAR(5)", "NATIONAL VARCHAR(6)", "VARCHAR(9)", "CHARACTER VARYING(8)", "NVARCHAR(4)", "TEXT(300)", "LONG"),
    *("CHAR", "CHARACTER(3)", "ENUM('x ',\"y\")", "SET('é','a b')", "NATIONAL CHAR VARYING(5)", "LONG VARCHAR"),
)
_OTHERS = (
    *("INT", "BIGINT UNSIGNED", "FLOAT", "REAL", "DOUBLE", "DATE", "TIME", "TIME(3)", "DATETIME", "DATETIME(3)"),
    *("DATETIME(6)", "TIMESTAMP", "TIMESTAMP(3)", "TIMESTAMP(6)", "YEAR", "BLOB", "VARBINARY(9)", "BINARY(3)"),
    *("BIT(5)", "JSON", "DECIMAL(8,2)", "BOOL", "SERIAL", "TINYINT(1)", "INT(5) ZEROFILL", "FLOAT(7,3)", "FIXED(6,2)"),
    *("DOUBLE PRECISION", "INT8", "MIDDLEINT", "FLOAT4", "FLOAT8", "DEC", "NUMERIC(5)", "BOOLEAN", "LONG VARBINARY"),
    *("TINYINT UNSIGNED", "SMALLINT", "FLOAT(30)", "TINYBLOB", "DEC(4) UNSIGNED", "BIT", "POINT"),
)
_OWN_OTHERS = {
    "mariadb": ("RAW(9)", "CLOB", "VARCHAR2(9)", "NUMBER", "NUMBER(8,2)", "UUID", "INET6", "INET4", "NUMBER(9)"),
    "mysql": ("VECTOR(2)", "GEOMETRY", "POINT SRID 4326"),
}
_DEFAULTS = (
    *(
        "''",
        "'a'",
        "'é'",
        "0",
        "1",
        "NULL",
        "'0000-00-00'",
        "'2026-02-30'",
        "'2026-01-02 03:04:05.678'",
        "'23:59:59.9'",
    ),
    *("1.5", "'1.7'", "(CONCAT('a', 'é'))", "(DATE_FORMAT('2026-01-02', '%M'))", "('a' || 'b')", '"x"', "'a\\'"),
    *("CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP", "NOW(3)", "(1/3)", "(CURRENT_DATE)"),
    *("'2026-12-31 23:59:59.9999999'", "X'41'", "0x42", "b'101'", "-1", "1e2", "TRUE"),
    *("'2026-01-01'", "'a\\nb'", "'it''s'", "(UPPER('ß'))", "(NOT 0 BETWEEN -5 AND 5)"),
    *("('é' = 'e')", "(CAST('7.9' AS SIGNED))", "(FORMAT(1234.5, 2))", "20260102", "'20260102030405'", "'10:11:12'"),
    *("(CAST(0.1 AS CHAR))", "(HEX('é'))", "(CHAR_LENGTH('é'))", "(TIMESTAMP'2026-01-02 03:04:05')", "1 COMMENT 'x'"),
    *("(CHAR(233))", "(CONVERT('é' USING latin1))", "(JSON_QUOTE('é'))", "(LPAD('x', 3))", "('')", "(IFNULL('', 'n'))"),
    *("(UNIX_TIMESTAMP('2026-01-02 03:04:05'))", "(FROM_UNIXTIME(1000000000))", "(DAYNAME('2026-01-02'))"),
)
_EXPRESSIONS = (
    *("CONCAT(id, 'é')", "CAST(id AS CHAR)", "id || 'x'", "id - 5", "'a' = 'A'", "id + 1", "NOT id BETWEEN 1 AND 5"),
    *("CONCAT('ß', id)", "id / 7", "IF(id > 5, '', 'b')", "HEX(id)", "id * 1.5", "CAST(id AS UNSIGNED) + 1000000"),
    *("CONCAT(CHAR(65), id)", "LOWER(CONCAT('É', id))", 'CONCAT(id, "x")', "REPEAT('é', id % 3)"),
    *("IF(CONCAT('é', id) LIKE 'e%', 1, 2)", "FLOOR(id / 3)", "FORMAT(id, 2)", "-id"),
    *("IF('a ' = 'a', id, 0)", "CAST(id AS DECIMAL(12,3))", "DATE_ADD('2026-01-01', INTERVAL id % 9 DAY)", "id DIV 2"),
    *("CAST(CONCAT('2026-01-0', 1 + id % 9, ' 11:12:13.9') AS DATETIME)", "IFNULL(NULL, id)", "(id)", "id % 5 || 'a'"),
)
_CHECKS = (
    *("id >= 0", "'é' <> 'x'", "id < 1e9", "id || '' <> 'q'", "id - 1 < 1000000000", "NOT id BETWEEN -9 AND -5"),
    *(
        "CHAR_LENGTH(CONCAT('é', id)) > 0",
        "'a' = 'A'",
        "id <> 17 OR 'é' = 'e'",
        "CONCAT(id, \"é\") <> 'z'",
        "(id) > -1",
    ),
)
_COLUMNS = ("c0", "c1", "c2", "c3", "c4", "key", "Größe", "a b", "select", "back`tick", "C5", "desc")
PLAIN = ("t0", "t1", "t2", "t3", "order", "tä", "a b", "T7")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A statement. ``table``: the table that it changes, "" for none; ``settings``: what its session sets before."""

    table: str
    text: str
    settings: tuple[str, ...] = ()


@dataclass
class Drawer:
    """Draws for one server. ``columns``: those that each table has now. ``of_shards``: the tables have a mapped id, so
    expressions are about another column, and there are no statements about whole tables."""

    draw: random.Random
    flavor: str
    schema: str
    tables: Sequence[str] = PLAIN
    columns: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    of_shards: bool = False
    _quotes: bool = False

    def statement(self) -> Drawn:
        """A statement with its session."""
        draw = self.draw
        own = _OWN_MODES[self.flavor]
        modes = draw.sample(_MODES, draw.choice((0, 1, 1, 2, 3))) + draw.sample(own, draw.choice((0, 0, 1)))
        self._quotes = not _QUOTING.isdisjoint(modes)
        settings = [f"sql_mode = '{','.join(modes)}'", *draw.sample(self._settings(), draw.randint(0, 5))]
        drawn = self._statement()
        names = (f"NAMES {draw.choice(_CLIENTS)}",) if draw.random() < 0.25 else ()
        text = self._commented(drawn.text) if draw.random() < 0.1 else drawn.text
        return Drawn(drawn.table, text, tuple(f"SET {each}" for each in (*names, *settings)))

    def again(self) -> tuple[str, ...]:
        """Settings of another session, without those that decide how a text is read."""
        return tuple(f"SET {each}" for each in self.draw.sample(self._settings(), self.draw.randint(0, 5)))

    def _about(self, expressions: Sequence[str]) -> str:
        found = self.draw.choice(expressions)
        return re.sub(r"\bid\b", "u", found) if self.of_shards else found

    def _pick(self, *options: str) -> str:
        return self.draw.choice(options)

    def _settings(self) -> list[str]:
        draw = self.draw
        common = [
            f"collation_connection = {self._collation()}",
            f"time_zone = '{self._pick('+05:30', '-03:00', 'SYSTEM', '+00:00')}'",
            f"explicit_defaults_for_timestamp = {draw.randint(0, 1)}",
            f"lc_time_names = '{self._pick('de_DE', 'ja_JP', 'fr_FR', 'en_US')}'",
            "auto_increment_increment = 7, auto_increment_offset = 3",
            f"foreign_key_checks = {draw.randint(0, 1)}",
            "unique_checks = 0",
            "sql_auto_is_null = 1",
            f"timestamp = {1_600_000_000 + draw.randint(0, 10**8)}.25",
            f"collation_server = {self._collation()}",
            f"collation_database = {self._collation()}",
            f"innodb_strict_mode = {draw.randint(0, 1)}",
            "div_precision_increment = 9",
            "default_week_format = 3",
            "insert_id = 50",
            "character_set_results = latin1",
        ]
        if self.flavor == "mariadb":
            return [
                *common,
                "check_constraint_checks = 0",
                "system_versioning_insert_history = 1",
                "sql_if_exists = 1",
                f"character_set_collations = 'utf8mb4={self._pick('utf8mb4_bin', 'utf8mb4_german2_ci')}'",
                "character_set_collations = 'latin1=latin1_german1_ci,utf8mb3=utf8mb3_bin'",
                "innodb_compression_default = 1",
                "div_precision_increment = 2",
            ]
        return [
            *common,
            f"sql_require_primary_key = {draw.randint(0, 1)}",
            f"default_collation_for_utf8mb4 = {self._pick('utf8mb4_general_ci', 'utf8mb4_0900_ai_ci')}",
            "sql_generate_invisible_primary_key = 1",
            "show_create_table_verbosity = 1",
            "windowing_use_high_precision = 0",
            "show_gipk_in_create_table_and_information_schema = 0",
        ]

    def _commented(self, text: str) -> str:
        return self._pick(
            f"/* é */ {text} -- ß",
            text.replace(" ", " /*!50000 */ ", 1),
            f"{text} # x",
            f"/*!40000 {text} */",
            text.replace("TABLE", "/*! TABLE */", 1),
            text.replace(" ", "\n\t", 2),
            f"/*!99999 garbage ' */ {text}" if self.flavor == "mysql" else f"/*M!100000 {text} */",
        )

    # --- statements

    def _statement(self) -> Drawn:
        draw, table = self.draw, self._pick(*self.tables)
        at = self._table(table)
        if table not in self.columns or draw.random() < 0.04:
            return Drawn(table, self._create(at))
        if not self.of_shards and (other := self._whole(table, at)) is not None:
            return other
        roll = draw.random()
        if roll < 0.03:
            return Drawn(table, f"CREATE {self._unique()}INDEX {self._index()} ON {at} ({self._parts(table)})")
        if roll < 0.05 and not self.of_shards:
            return Drawn(table, f"DROP INDEX {self._index()} ON {at}")
        clauses = [self._clause(table) for _ in range(draw.choice((1, 1, 1, 1, 2, 3)))]
        how = self._pick(*[""] * 9, ", ALGORITHM=COPY", ", ALGORITHM=INPLACE", ", LOCK=SHARED", ", ALGORITHM=INSTANT")
        exists = "IF EXISTS " if self.flavor == "mariadb" and draw.random() < 0.05 else ""
        return Drawn(table, f"ALTER TABLE {exists}{at} {', '.join(clauses)}{how}")

    def _whole(self, table: str, at: str) -> Drawn | None:
        """A statement about a whole table, or a schema."""
        roll, free = self.draw.random(), [f"n{len(self.columns)}_{self.draw.randrange(10**6)}"]
        if roll < 0.04:
            return Drawn("", f"ALTER DATABASE {self._pick(self.schema, '', f'`{self.schema}`')} {self._charset()}")
        if roll < 0.06:
            return Drawn(table, f"DROP TABLE {self._pick('', 'IF EXISTS ')}{at}")
        if roll < 0.08:
            return Drawn(table, f"TRUNCATE {self._pick('TABLE ', '')}{at}")
        if roll < 0.10 and free:
            return Drawn(free[0], f"CREATE TABLE {self._table(free[0])} LIKE {at}")
        if roll < 0.12 and free:
            return Drawn(
                free[0],
                self._pick(
                    f"RENAME TABLE {at} TO {self._table(free[0])}", f"ALTER TABLE {at} RENAME TO {self._table(free[0])}"
                ),
            )
        if roll < 0.13 and free:
            return Drawn(
                free[0], f"CREATE TABLE {self._table(free[0])} (PRIMARY KEY (id)) {self._options()} SELECT * FROM {at}"
            )
        if roll < 0.133 and self.flavor == "mariadb":
            return Drawn(table, self._create(at).replace("CREATE TABLE", "CREATE OR REPLACE TABLE", 1))
        return None

    def _create(self, at: str) -> str:
        draw = self.draw
        names = draw.sample(_COLUMNS, draw.randint(1, 5))
        items = [self._column(name) for name in names]
        if draw.random() < 0.3:
            items.append(f"CHECK ({self._about(_CHECKS)})")
        if draw.random() < 0.3:
            items.append(f"KEY {self._index()} ({self._quoted(draw.choice(names))}{self._pick('', '(3)', ' DESC')})")
        if draw.random() < 0.3:
            items.append(f"{self._quoted('gen')} {self._generated()}")
        draw.shuffle(items)
        if draw.random() < 0.15:
            items = [self._column(name) for name in names]
        exists = self._pick(*[""] * 5, "IF NOT EXISTS ")
        partition = (
            ""
            if self.of_shards
            else self._pick(*[""] * 12, " PARTITION BY HASH (id) PARTITIONS 2", " PARTITION BY KEY (id)")
        )
        key = self._pick(*["id INT PRIMARY KEY"] * 20, "id INT NOT NULL")
        if self.of_shards:
            key = "id INT PRIMARY KEY, u INT NOT NULL"
        return f"CREATE TABLE {exists}{at} ({key}, {', '.join(items)}) {self._options()}{partition}"

    def _options(self) -> str:
        if self.draw.random() < 0.55:
            return ""
        options = [self._charset()] if self.draw.random() < 0.8 else [f"COLLATE = {self._collation()}"]
        options += self.draw.sample(
            [
                "COMMENT = 'é'",
                "ENGINE = InnoDB",
                "ROW_FORMAT = DYNAMIC",
                'COMMENT "x"',
                "MIN_ROWS = 5",
                "AUTO_INCREMENT = 7",
            ],
            self.draw.choice((0, 0, 1)),
        )
        self.draw.shuffle(options)
        return self._pick(" ", ", ").join(options)

    def _clause(self, table: str) -> str:
        draw, name = self.draw, self._name(table)
        word = self._pick("COLUMN ", "")
        place = self._pick("", "", "", " FIRST", " AFTER id")
        match draw.randrange(22):
            case 0 | 1 | 2 | 3:
                return f"ADD {word}{self._column(self._pick(*_COLUMNS))}{place}"
            case 4 | 5 | 6:
                return f"MODIFY {word}{self._column(name)}{place}"
            case 7:
                return f"CHANGE {word}{self._quoted(name)} {self._column(self._pick(name, *_COLUMNS))}{place}"
            case 8:
                return f"DROP {word}{self._quoted(name)}"
            case 9 | 10:
                return f"ALTER {word}{self._quoted(name)} SET DEFAULT {self._pick(*_DEFAULTS)}"
            case 11:
                return f"ALTER {word}{self._quoted(name)} DROP DEFAULT"
            case 12 | 13:
                return f"ADD {word}{self._quoted(self._pick('gen', 'gen2'))} {self._generated()}{place}"
            case 14:
                return f"CONVERT TO {self._pick('CHARACTER SET DEFAULT', self._charset(), self._charset())}"
            case 15:
                return self._options() or self._charset()
            case 16:
                return f"RENAME COLUMN {self._quoted(name)} TO {self._quoted(self._pick(*_COLUMNS))}"
            case 17:
                unique = self._pick("", self._unique(), "FULLTEXT ")
                return f"ADD {unique}{self._pick('KEY', 'INDEX')} {self._index()} ({self._parts(table)})"
            case 18:
                return self._pick(
                    f"DROP {self._pick('KEY', 'INDEX')} {self._index()}",
                    f"RENAME INDEX {self._index()} TO {self._index()}",
                    "ORDER BY id",
                    "FORCE",
                    "ENGINE = InnoDB",
                    "DROP PRIMARY KEY, ADD PRIMARY KEY (id)",
                    *(["FORCE"] if self.of_shards else ["PARTITION BY HASH (id) PARTITIONS 3", "REMOVE PARTITIONING"]),
                    f"ALTER INDEX {self._index()} {'NOT IGNORED' if self.flavor == 'mariadb' else 'INVISIBLE'}",
                )
            case 19:
                return f"ADD {self._pick('', f'CONSTRAINT k{draw.randrange(9**9)} ')}CHECK ({self._about(_CHECKS)})"
            case 20:
                return f"ADD {word}({self._column('c8')}, {self._column('c9')})"
            case _:
                return f"MODIFY {self._quoted('gen')} {self._generated()}"

    # --- parts

    def _table(self, table: str) -> str:
        quoted = self._quoted(table)
        return self._pick(quoted, quoted, quoted, f"{self.schema}.{quoted}", f"`{self.schema}` . {quoted}")

    def _quoted(self, name: str) -> str:
        plain = name.isidentifier() and name not in ("key", "select", "order", "desc")
        marks = ['"', "`"] if self._quotes else ["`"]
        mark = self._pick(*marks, *([""] * 2 if plain else []))
        return f"{mark}{name.replace(mark, mark * 2) if mark else name}{mark}"

    def _unique(self) -> str:
        """MariaDB has a hidden column for a unique key of a long text, which stops the task."""
        return self._pick("", "UNIQUE ") if self.flavor == "mysql" else ""

    def _index(self) -> str:
        return self._quoted(f"i{self.draw.randrange(3)}")

    def _name(self, table: str) -> str:
        return self._pick(*(self.columns.get(table) or ["c0"]))

    def _parts(self, table: str) -> str:
        name = self._quoted(self._name(table))
        return self._pick(
            name,
            name,
            f"{name}(3)",
            f"{name} DESC",
            f"id, {name}",
            f"(CONCAT({'u' if self.of_shards else 'id'}, 'é'))",
            f"({name} || 'x')",
            f"(CAST({name} AS CHAR(9)))",
        )

    def _collation(self) -> str:
        return self._pick(*_COLLATIONS, *_OWN_COLLATIONS[self.flavor])

    def _charset(self) -> str:
        charset, draw = self._pick(*_CHARSETS[: self.draw.choice((6, len(_CHARSETS)))]), self.draw
        word = self._pick("CHARACTER SET", "CHARSET", "CHARACTER SET =", "DEFAULT CHARSET=")
        name = self._pick(charset, charset, charset, f"'{charset}'", charset.upper())
        tail = self._pick(
            "", "", "", f" COLLATE {charset}_bin", f" COLLATE = '{charset}_bin'", f" COLLATE {self._collation()}"
        )
        if charset == "binary":
            tail = ""
        return f"{word} {name}{tail}" if draw.random() < 0.95 else f"COLLATE {self._collation()}"

    def _column_charset(self) -> str:
        return self._charset().replace("DEFAULT ", "").replace("=", " ")

    def _column(self, name: str) -> str:
        draw = self.draw
        if draw.random() < 0.55:
            charset = self._column_charset
            attribute = self._pick(
                *("", "", charset(), charset(), "BINARY", "ASCII", "UNICODE", f"{charset()} BINARY", "BYTE"),
                *(f"COLLATE {self._collation()}", "ASCII BINARY", "BINARY UNICODE"),
            )
            kind = f"{self._pick(*_TEXTS)} {attribute}"
        else:
            kind = self._pick(*_OTHERS, *_OWN_OTHERS[self.flavor])
        null = self._pick("", "", "NOT NULL", "NULL")
        default = f"DEFAULT {self._pick(*_DEFAULTS)}" if draw.random() < 0.55 else ""
        unique = (
            "UNIQUE"
            if self.flavor == "mysql" or (kind.startswith(("INT", "DA", "DE", "TI", "BIG")) and "X" not in kind)
            else ""
        )
        rest = self._pick(
            *[""] * 12, "COMMENT 'é'", "INVISIBLE", f"CHECK ({self._about(_CHECKS)})", unique, 'COMMENT "a\\\\b"'
        )
        parts = [null, default, rest]
        if draw.random() < 0.1:
            draw.shuffle(parts)
        return f"{self._quoted(name)} {kind} {' '.join(filter(None, parts))}"

    def _generated(self) -> str:
        kind = self._pick(
            f"VARCHAR(40) {self._pick('', self._column_charset())}",
            "VARCHAR(40) CHARACTER SET utf8mb4",
            "INT",
            "BIGINT",
            "DECIMAL(20,9)",
            "CHAR(20)",
            "DATETIME",
            "TEXT",
            "DOUBLE",
        )
        how, always = self._pick("VIRTUAL", "STORED", ""), self._pick("", "GENERATED ALWAYS ")
        return f"{kind} {always}AS ({self._about(_EXPRESSIONS)}) {how}"


VALUES: Mapping[str, tuple[str, ...]] = {
    "int": ("0", "1", "7", "-3", "100"),
    "float": ("0", "1.5", "-2.25", "1e3", "0.1"),
    "text": ("''", "'a'", "'é'", "'ß'", "'Ω'", "'A '", "'Ã©'", "'3'", "'b'"),
    "bytes": ("''", "'a'", "X'00FF'", "'A '"),
    "date": ("'2026-01-02'", "'0000-00-00'", "'2026-02-30'", "'1999-12-31'"),
    "datetime": ("'2026-01-02 03:04:05.678901'", "'2026-01-02 23:59:59.999999'", "'2001-01-01 00:00:00'"),
    "time": ("'03:04:05.678901'", "'-10:00:00'", "'23:59:59.9999999'"),
}
_OF_TYPES = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit"), "int"),
    **dict.fromkeys(("float", "double", "decimal"), "float"),
    **dict.fromkeys(("date",), "date"),
    **dict.fromkeys(("datetime", "timestamp"), "datetime"),
    **dict.fromkeys(("time",), "time"),
    **dict.fromkeys(("blob", "tinyblob", "mediumblob", "longblob", "binary", "varbinary"), "bytes"),
}
_LITERALS = {
    "json": ('\'{"a": "é"}\'', "'1'"),
    "uuid": ("'123e4567-e89b-12d3-a456-426655440000'",),
    "inet6": ("'::1'",),
    "inet4": ("'1.2.3.4'",),
    "point": ("ST_GeomFromText('POINT(1 2)')",),
    "geometry": ("ST_GeomFromText('POINT(1 2)')",),
    "vector": ("X'0000803F0000803F'",),
    "year": ("2026", "1999"),
    "bit": ("0", "1"),
}


def values_for(kind: str, column_type: str) -> Sequence[str]:
    """Literals for a column of this data type."""
    if kind in ("enum", "set"):
        return column_type[column_type.index("(") + 1 : -1].replace("','", "'\0'").split("\0")
    return _LITERALS.get(kind) or VALUES[_OF_TYPES.get(kind, "text")]


def inserts(draw: random.Random, table: str, columns: Sequence[tuple[str, str, str]], number: int) -> Iterator[str]:
    """INSERT statements of which the first that the server takes is to run. ``columns``: name, data type, type."""

    def quoted(name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    for count in (len(columns), len(columns), max(len(columns) // 2, 1), 1, 0):
        some = draw.sample(list(columns), min(count, len(columns)))
        names = ", ".join(("id", *(quoted(name) for name, _, _ in some)))
        values = ", ".join((str(number), *(draw.choice(values_for(kind, full)) for _, kind, full in some)))
        yield f"INSERT INTO {quoted(table)} ({names}) VALUES ({values})"
