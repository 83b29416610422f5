"""Defines one table with a column of every supported type, and rows at the edges of each type."""

from __future__ import annotations

from shardmerge.worker.core.table import Column, Table, ValueKind

CREATE = """
CREATE TABLE d.all_types (
  id BIGINT UNSIGNED PRIMARY KEY,
  ti TINYINT, tu TINYINT UNSIGNED, si SMALLINT, su SMALLINT UNSIGNED, mi MEDIUMINT, mu MEDIUMINT UNSIGNED,
  i INT, iu INT UNSIGNED, bi BIGINT, bu BIGINT UNSIGNED, iz INT(8) ZEROFILL,
  y YEAR,
  d65 DECIMAL(65,30), d5 DECIMAL(5,5), d9 DECIMAL(9,0), d18 DECIMAL(18,9) UNSIGNED, dz DECIMAL(10,3) ZEROFILL,
  f FLOAT, f2 FLOAT(7,3), db DOUBLE, db2 DOUBLE(12,4),
  b1 BIT(1), b11 BIT(11), b64 BIT(64),
  gen INT AS (ti + 1) VIRTUAL,
  da DATE, t0 TIME, t1 TIME(1), t3 TIME(3), t6 TIME(6),
  dt0 DATETIME, dt2 DATETIME(2), dt5 DATETIME(5), dt6 DATETIME(6),
  ts0 TIMESTAMP NULL, ts3 TIMESTAMP(3) NULL, ts6 TIMESTAMP(6) NULL,
  `stored` VARCHAR(40) CHARACTER SET utf8mb4 AS (concat('s', ti)) STORED,
  ch CHAR(10) CHARACTER SET utf8mb4, chl CHAR(255) CHARACTER SET utf8mb4, vc VARCHAR(100) CHARACTER SET utf8mb4,
  v3 VARCHAR(1000) CHARACTER SET utf8mb3, va VARCHAR(10) CHARACTER SET ascii,
  vl VARCHAR(100) CHARACTER SET latin1, vg VARCHAR(300) CHARACTER SET gbk, vu VARCHAR(20) CHARACTER SET ucs2,
  tt TINYTEXT CHARACTER SET utf8mb4, tx TEXT CHARACTER SET latin1, tm MEDIUMTEXT CHARACTER SET gbk,
  tl LONGTEXT CHARACTER SET utf8mb4, js JSON,
  bn BINARY(6), vb VARBINARY(300), tb TINYBLOB, bl BLOB, mb MEDIUMBLOB, lb LONGBLOB,
  e ENUM('a','b''c','d\\\\e','ü') CHARACTER SET utf8mb4, e2 ENUM('x') CHARACTER SET latin1,
  s SET('x','y''','z\\\\','ü','5','6','7','8','9') CHARACTER SET utf8mb4,
  p GEOMETRY
)"""

_INTEGERS = ("ti", "tu", "si", "su", "mi", "mu", "i", "iu", "bi", "bu")
_LOWEST = ("-128", "0", "-32768", "0", "-8388608", "0", "-2147483648", "0", "-9223372036854775808", "0")
_HIGHEST = ("127", "255", "32767", "65535", "8388607", "16777215", "2147483647", "4294967295",
            "9223372036854775807", "18446744073709551615")  # fmt: skip


def _row(number: int, **values: str) -> str:
    """Return an INSERT of the named columns; the values are SQL."""
    values = {"id": str(number)} | values
    return f"INSERT INTO d.all_types ({', '.join(values)}) VALUES ({', '.join(values.values())})"


def _same(value: str, *columns: str) -> dict[str, str]:
    return dict.fromkeys(columns, value)


INSERTS = (
    _row(0),
    _row(1, **dict(zip(_INTEGERS, _LOWEST, strict=True)), iz="0", y="0"),
    _row(2, **dict(zip(_INTEGERS, _HIGHEST, strict=True)), iz="4294967295", y="2155"),
    _row(3, **_same("-1", "ti", "si", "mi", "i", "bi"), **_same("1", "tu", "su", "mu", "iu", "bu"), iz="42", y="1901"),
    _row(4, d65="-12345678901234567890123456789012345.123456789012345678901234567890", d5="-0.99999",
         d9="-999999999", d18="0", dz="1.5"),
    _row(5, d65="0.000000000000000000000000000001", d5="0", d9="7", d18="123456789.987654321", dz="0"),
    _row(6, d65="99999999999999999999999999999999999.999999999999999999999999999999", d5="0.00001", d9="-1",
         d18="999999999.999999999", dz="9999999.999"),
    _row(7, f="0.1", f2="1.1", db="0.1", db2="1.1"),
    _row(8, f="-3.402823466e38", f2="-9999.999", db="-1.7976931348623157e308", db2="-99999999.9999"),
    _row(9, f="1.401298464e-45", f2="0", db="4.9406564584124654e-324", db2="0"),
    _row(10, f="16777217", f2="0.001", db="-2.2250738585072014e-308", db2="0.0001"),
    _row(11, f="1e15", db="1e16", db2="12345678.9"),
    _row(12, b1="b'0'", b11="0", b64="0"),
    _row(13, b1="b'1'", b11="b'10000000001'", b64="~0"),
    _row(14, da="'0000-00-00'", t0="'00:00:00'", t1="'00:00:00.1'", t3="'-00:00:00.001'", t6="'-00:00:00.000001'",
         dt0="'0000-00-00'", dt2="'0000-00-00'", dt5="'0000-00-00'", dt6="'0000-00-00'",
         ts0="'0000-00-00'", ts3="'0000-00-00'", ts6="'0000-00-00'"),
    _row(15, da="'9999-12-31'", t0="'838:59:59'", t1="'838:59:59.9'", t3="'838:59:59.999'", t6="'838:59:59.999999'",
         dt0="'9999-12-31 23:59:59'", dt2="'9999-12-31 23:59:59.99'", dt5="'9999-12-31 23:59:59.99999'",
         dt6="'9999-12-31 23:59:59.999999'", ts0="'2038-01-19 03:14:07'", ts3="'2038-01-19 03:14:07.999'",
         ts6="'2038-01-19 03:14:07.999999'"),
    _row(16, da="'2024-00-00'", t0="'-838:59:59'", t1="'-838:59:59.9'", t3="'-838:59:59.999'",
         t6="'-838:59:59.999999'", dt0="'2024-02-29 00:00:00'", dt2="'2024-01-00 10:00:00.5'",
         dt5="'1000-01-01 00:00:00.00001'", dt6="'0001-01-01 00:00:00.000001'", ts0="'1970-01-01 00:00:01'",
         ts3="'1970-01-01 00:00:01.001'", ts6="'2000-02-29 23:59:59.000001'"),
    _row(17, da="'1000-01-01'", t0="'-01:00:00'", t1="'-01:00:00.5'", t3="'12:34:56.789'", t6="'-99:00:00.5'",
         ts0="'1999-12-31 23:59:59'", ts3="'2001-03-01 00:00:00.5'", ts6="'2037-12-31 00:00:00'"),
    _row(18, **_same("''", "ch", "chl", "vc", "v3", "va", "vl", "vg", "vu", "tt", "tx", "tm", "tl", "bn", "vb",
         "tb", "bl", "mb", "lb", "s")),
    _row(19, ch="'  a  '", chl="'\\'\\\\\\n\\r\\t\"'", vc="'😀é中\\0\\Z'", v3="'中文'", va="'~'", vl="'éÿ€'",
         vg="'中文縗'", vu="'é中'", tt="'tiny'", tx="'é\\''", tm="'縗'", tl="'long😀'", js="'{\"a\": [1, \"x\"]}'"),
    _row(20, chl="repeat('😀', 255)", vc="repeat('é', 100)", v3="repeat('中', 300)", vg="repeat('中', 300)"),
    _row(21, bn="X'0102'", vb="X'00FF275C'", tb="X'00'", bl="X'0000'", mb="X'01'", lb="X'02'"),
    _row(22, bn="X'000000000000'", vb="repeat('x', 300)", tb="repeat('y', 255)", bl="repeat('\\'', 1000)"),
    _row(23, e="'a'", e2="'x'", s="'x'"),
    _row(24, e="'b''c'", s="'x,y'''"),
    _row(25, e="'d\\\\e'", s="'z\\\\,ü'"),
    _row(26, e="'ü'", s="'x,y'',z\\\\,ü,5,6,7,8,9'"),
    _row(27, p="POINT(1, 2)"),
    _row(18446744073709551615, p="ST_GeomFromText('LINESTRING(0 0, 1 1)', 4326)"),
)  # fmt: skip
"""Rows for a session with sql_mode '' (zero dates, rounding)."""

CHANGES = (
    "UPDATE d.all_types SET ti = 5, vc = 'changed', f = 2.5 WHERE id < 3",
    "UPDATE d.all_types SET id = 1000 WHERE id = 19",
    "DELETE FROM d.all_types WHERE id IN (15, 16, 1000)",
)

TABLE = Table(
    schema="d",
    name="all_types",
    columns=(
        Column("id", ValueKind.INTEGER, "bigint(20) unsigned", False, unsigned=True),
        Column("ti", ValueKind.INTEGER, "tinyint(4)", True),
        Column("tu", ValueKind.INTEGER, "tinyint(3) unsigned", True, unsigned=True),
        Column("si", ValueKind.INTEGER, "smallint(6)", True),
        Column("su", ValueKind.INTEGER, "smallint(5) unsigned", True, unsigned=True),
        Column("mi", ValueKind.INTEGER, "mediumint(9)", True),
        Column("mu", ValueKind.INTEGER, "mediumint(8) unsigned", True, unsigned=True),
        Column("i", ValueKind.INTEGER, "int(11)", True),
        Column("iu", ValueKind.INTEGER, "int(10) unsigned", True, unsigned=True),
        Column("bi", ValueKind.INTEGER, "bigint(20)", True),
        Column("bu", ValueKind.INTEGER, "bigint(20) unsigned", True, unsigned=True),
        Column("iz", ValueKind.INTEGER, "int(8) unsigned zerofill", True, unsigned=True),
        Column("y", ValueKind.YEAR, "year(4)", True),
        Column("d65", ValueKind.DECIMAL, "decimal(65,30)", True),
        Column("d5", ValueKind.DECIMAL, "decimal(5,5)", True),
        Column("d9", ValueKind.DECIMAL, "decimal(9,0)", True),
        Column("d18", ValueKind.DECIMAL, "decimal(18,9) unsigned", True, unsigned=True),
        Column("dz", ValueKind.DECIMAL, "decimal(10,3) unsigned zerofill", True, unsigned=True),
        Column("f", ValueKind.FLOAT, "float", True),
        Column("f2", ValueKind.FLOAT, "float(7,3)", True),
        Column("db", ValueKind.DOUBLE, "double", True),
        Column("db2", ValueKind.DOUBLE, "double(12,4)", True),
        Column("b1", ValueKind.BIT, "bit(1)", True),
        Column("b11", ValueKind.BIT, "bit(11)", True),
        Column("b64", ValueKind.BIT, "bit(64)", True),
        Column("gen", ValueKind.INTEGER, "int(11)", True, generated=True),
        Column("da", ValueKind.DATE, "date", True),
        Column("t0", ValueKind.TIME, "time", True),
        Column("t1", ValueKind.TIME, "time(1)", True),
        Column("t3", ValueKind.TIME, "time(3)", True),
        Column("t6", ValueKind.TIME, "time(6)", True),
        Column("dt0", ValueKind.DATETIME, "datetime", True),
        Column("dt2", ValueKind.DATETIME, "datetime(2)", True),
        Column("dt5", ValueKind.DATETIME, "datetime(5)", True),
        Column("dt6", ValueKind.DATETIME, "datetime(6)", True),
        Column("ts0", ValueKind.TIMESTAMP, "timestamp", True),
        Column("ts3", ValueKind.TIMESTAMP, "timestamp(3)", True),
        Column("ts6", ValueKind.TIMESTAMP, "timestamp(6)", True),
        Column(
            "stored",
            ValueKind.STRING,
            "varchar(40)",
            True,
            charset="utf8mb4",
            collation="utf8mb4_general_ci",
            generated=True,
        ),
        Column("ch", ValueKind.STRING, "char(10)", True, charset="utf8mb4", collation="utf8mb4_general_ci"),
        Column("chl", ValueKind.STRING, "char(255)", True, charset="utf8mb4", collation="utf8mb4_general_ci"),
        Column("vc", ValueKind.STRING, "varchar(100)", True, charset="utf8mb4", collation="utf8mb4_general_ci"),
        Column("v3", ValueKind.STRING, "varchar(1000)", True, charset="utf8mb3", collation="utf8mb3_general_ci"),
        Column("va", ValueKind.STRING, "varchar(10)", True, charset="ascii", collation="ascii_general_ci"),
        Column("vl", ValueKind.STRING, "varchar(100)", True, charset="latin1", collation="latin1_swedish_ci"),
        Column("vg", ValueKind.STRING, "varchar(300)", True, charset="gbk", collation="gbk_chinese_ci"),
        Column("vu", ValueKind.STRING, "varchar(20)", True, charset="ucs2", collation="ucs2_general_ci"),
        Column("tt", ValueKind.STRING, "tinytext", True, charset="utf8mb4", collation="utf8mb4_general_ci"),
        Column("tx", ValueKind.STRING, "text", True, charset="latin1", collation="latin1_swedish_ci"),
        Column("tm", ValueKind.STRING, "mediumtext", True, charset="gbk", collation="gbk_chinese_ci"),
        Column("tl", ValueKind.STRING, "longtext", True, charset="utf8mb4", collation="utf8mb4_general_ci"),
        Column("js", ValueKind.STRING, "longtext", True, charset="utf8mb4", collation="utf8mb4_bin"),
        Column("bn", ValueKind.BINARY, "binary(6)", True, length=6),
        Column("vb", ValueKind.BINARY, "varbinary(300)", True),
        Column("tb", ValueKind.BINARY, "tinyblob", True),
        Column("bl", ValueKind.BINARY, "blob", True),
        Column("mb", ValueKind.BINARY, "mediumblob", True),
        Column("lb", ValueKind.BINARY, "longblob", True),
        Column(
            "e",
            ValueKind.ENUM,
            "enum('a','b''c','d\\\\e','ü')",
            True,
            charset="utf8mb4",
            collation="utf8mb4_general_ci",
            labels=("a", "b'c", "d\\e", "ü"),
        ),
        Column("e2", ValueKind.ENUM, "enum('x')", True, charset="latin1", collation="latin1_swedish_ci", labels=("x",)),
        Column(
            "s",
            ValueKind.SET,
            "set('x','y''','z\\\\','ü','5','6','7','8','9')",
            True,
            charset="utf8mb4",
            collation="utf8mb4_general_ci",
            labels=("x", "y'", "z\\", "ü", "5", "6", "7", "8", "9"),
        ),
        Column("p", ValueKind.GEOMETRY, "geometry", True),
    ),
    key=(0,),
    key_name="PRIMARY",
    unique_keys=(("id",),),
    has_foreign_keys=False,
    engine="InnoDB",
)
"""The table as information_schema of MariaDB 10.11 describes it."""
