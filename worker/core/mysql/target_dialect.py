"""What differs between the servers that can be a target: MariaDB, MySQL and TiDB.

All knowledge about it is here; a connection reads it from its server when it is opened
(:func:`shardmerge.worker.core.mysql.connection.dialect_of`).

Sources for TiDB: its manual, "MySQL Compatibility", "Character Set and Collation", "System Variables",
"TiDB Pessimistic Transaction Mode", "Error Codes and Troubleshooting"; its source, pkg/sessionctx/variable.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

_TIDB = re.compile(r"tidb-v?(\d+)\.(\d+)(?:\.(\d+))?", re.IGNORECASE)
_RELEASE = re.compile(r"Release Version:\s*v?(\d+)\.(\d+)(?:\.(\d+))?", re.IGNORECASE)
_TYPES_TIDB_LACKS = re.compile(
    r"(geometry|geomcollection|geometrycollection|(multi)?(point|linestring|polygon)|vector|inet[46]|uuid)\b"
)
_TIDB_SESSION = (
    # Rows are locked when they are written, and duplicates found then, as at the other servers.
    "SET SESSION tidb_txn_mode = 'pessimistic', "
    # These would split a transaction, read an older state of the data, or accept invalid text.
    "tidb_batch_insert = 0, tidb_batch_delete = 0, tidb_dml_batch_size = 0, tidb_snapshot = '', "
    "tidb_skip_utf8_check = 0, tidb_opt_write_row_id = 0"
)
_TIDB_OPTIONAL = (
    # (variable, value): of newer versions, set where the server has them.
    ("tidb_constraint_check_in_place_pessimistic", "1"),
    ("tidb_read_staleness", "0"),
    ("tidb_dml_type", "'standard'"),
    ("tidb_low_resolution_tso", "0"),
    # The ids of an AUTO_RANDOM column are the source's.
    ("allow_auto_random_explicit_insert", "1"),
)


class ServerKind(enum.Enum):
    MARIADB = "mariadb"
    MYSQL = "mysql"
    TIDB = "tidb"


@dataclass(frozen=True, slots=True)
class TargetDialect:
    """``version``: the server's own; for TiDB not that of the MySQL with which it is compatible."""

    kind: ServerKind
    version: tuple[int, int, int]

    @property
    def is_mariadb(self) -> bool:
        return self.kind is ServerKind.MARIADB

    @property
    def is_tidb(self) -> bool:
        return self.kind is ServerKind.TIDB

    @property
    def share_lock(self) -> str:
        """The end of a SELECT whose rows no other session may change until the transaction ends.

        TiDB refuses LOCK IN SHARE MODE (errno 1235): it has no shared locks.
        """
        return "FOR UPDATE" if self.is_tidb else "LOCK IN SHARE MODE"

    @property
    def has_charsets(self) -> bool:
        """Whether a column keeps text in its own character set. TiDB stores the bytes of a latin1 column unchecked and
        returns them as they are, and it lacks most others: text is sent to it as utf8mb4."""
        return not self.is_tidb

    @property
    def has_negative_zero(self) -> bool:
        """Whether a FLOAT or DOUBLE keeps the sign of -0.0. MariaDB (10.11, 11.8) and TiDB (8.4) store 0."""
        return self.kind is ServerKind.MYSQL

    @property
    def adds_auto_increment(self) -> bool:
        """Whether ALTER TABLE … MODIFY can give a column AUTO_INCREMENT."""
        return not self.is_tidb

    @property
    def defers_indexes(self) -> bool:
        """Whether a load is faster without secondary indexes, which are added after it.

        TiDB 8.4 loaded 54,700 rows/s with an index, and 39,700 rows/s when it was added after the load (measured with
        its embedded store, tests/benchmarks).
        """
        return not self.is_tidb

    @property
    def has_asynchronous_ddl(self) -> bool:
        """Whether a DDL continues as a job of the cluster when the connection that sent it is lost."""
        return self.is_tidb

    @property
    def combines_actions(self) -> bool:
        """Whether one ALTER TABLE may have any actions, so that each builds on those before it (an index on a column
        that it adds)."""
        return not self.is_tidb

    def lacks_type(self, type_text: str) -> bool:
        """Whether no column of the server holds the values of this source type exactly, as a client reads them.

        TiDB has no spatial types (manual, "MySQL Compatibility"), none of MariaDB's address types, and its VECTOR is
        written and read as text.
        """
        return self.is_tidb and _TYPES_TIDB_LACKS.match(type_text.lower()) is not None

    @property
    def has_invisible_columns(self) -> bool:
        return not self.is_tidb

    @property
    def lengthens_converted_texts(self) -> bool:
        """Whether CONVERT TO CHARACTER SET makes TEXT longer where a character may take more bytes."""
        return not self.is_tidb

    @property
    def drops_keys_as_constraints(self) -> bool:
        """Whether ALTER TABLE … DROP CONSTRAINT drops a unique key, too. TiDB looks for a check of that name only: it
        refuses the statement (errno 3940), or ignores it while its checks are off."""
        return not self.is_tidb

    @property
    def has_time_locale(self) -> bool:
        """Whether lc_time_names can be set. At TiDB it is en_US and read-only (errno 1238)."""
        return not self.is_tidb

    @property
    def session_statements(self) -> tuple[str, ...]:
        """Statements that a new session needs beside those of all kinds."""
        return (_TIDB_SESSION,) if self.is_tidb else ()

    @property
    def optional_settings(self) -> tuple[tuple[str, str], ...]:
        """Variables and values that are set where the server knows the variable."""
        return _TIDB_OPTIONAL if self.is_tidb else ()


def parse_dialect(version: str, comment: str) -> TargetDialect:
    """The dialect by VERSION() and @@version_comment: a TiDB's version can be configured to look like MySQL's.

    Examples: "8.0.11-TiDB-v8.4.0"; "10.11.6-MariaDB-log"; "8.4.0". The version of TiDB is 0 where this does not show
    it.
    """
    if "mariadb" in version.lower():
        return TargetDialect(ServerKind.MARIADB, parse_version(version))
    if "tidb" in version.lower() or comment.startswith("TiDB"):
        return TargetDialect(ServerKind.TIDB, _numbers(_TIDB.search(version)))
    return TargetDialect(ServerKind.MYSQL, parse_version(version))


def parse_tidb_release(text: str) -> tuple[int, int, int]:
    """The version in the answer of TIDB_VERSION(), (8, 4, 0) of "Release Version: v8.4.0\\nEdition: ..."."""
    return _numbers(_RELEASE.search(text))


def _numbers(found: re.Match[str] | None) -> tuple[int, int, int]:
    return (0, 0, 0) if found is None else (int(found[1]), int(found[2]), int(found[3] or 0))


def parse_version(text: str) -> tuple[int, int, int]:
    """(10, 11, 6) of "5.5.5-10.11.6-MariaDB-log", (8, 4, 0) of "8.4.0"; missing parts are 0."""
    # MariaDB before 11 puts "5.5.5-" in front, for replicas that refuse a major version of 10.
    match = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)(?:\.(\d+))?", text)
    if match is None:
        return (0, 0, 0)
    return (int(match.group(1)), int(match.group(2)), int(match.group(3) or 0))
