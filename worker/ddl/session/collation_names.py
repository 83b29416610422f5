"""Finds the names of collations by their ids, and the default collation of a character set in a statement's session."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from shardmerge.worker.core.mysql.connection import dialect_of, rows, text_of
from shardmerge.worker.core.mysql.create_table import charset_of
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.ddl.sql.column_definition import first_collation
from shardmerge.worker.relay.serve.query_event import LoggedQuery
from shardmerge.worker.unit.run_context import RunContext

_KNOWN = {
    8: "latin1_swedish_ci",
    33: "utf8mb3_general_ci",
    45: "utf8mb4_general_ci",
    46: "utf8mb4_bin",
    63: "binary",
    224: "utf8mb4_unicode_ci",
    255: "utf8mb4_0900_ai_ci",
    2048: "utf8mb3_uca1400_ai_ci",
    2304: "utf8mb4_uca1400_ai_ci",
    2560: "ucs2_uca1400_ai_ci",
    2816: "utf16_uca1400_ai_ci",
    3072: "utf32_uca1400_ai_ci",
}
"""Ids that most sessions have: the same at all servers that know them."""

_ALL_MARIADB = (10, 10, 0)
"""The first MariaDB that lists the names of uca1400 collations with their ids."""
_UTF8MB3_NAMED = {True: (10, 6, 1), False: (8, 0, 30)}
"""The first MariaDB and the first MySQL in which utf8's collations are called utf8mb3_*."""
_MYSQL_0900 = (8, 0, 1)


@dataclass(slots=True)
class CollationNames:
    """For one thread. Asks the source for ids that are not well known, in one short session."""

    context: RunContext
    stop: StopSignal
    _found: dict[int, str] = field(default_factory=lambda: dict(_KNOWN))
    _utf8_is_utf8mb4: bool | None = None

    def name(self, number: int) -> str:
        """The collation's name; "" if the source does not know the id. Raises the source's coded errors."""
        if number not in self._found:
            self._found[number] = self._read(number)
        return self._found[number]

    def utf8_is_utf8mb4(self) -> bool:
        """Whether a MariaDB's name utf8 means utf8mb4 and not utf8mb3: it depends on old_mode, which no event has, so
        that of the server counts. Raises the source's coded errors."""
        if self._utf8_is_utf8mb4 is None:
            with self.context.at_source(self.stop) as session:
                [(modes,)] = rows(session, "SELECT @@GLOBAL.old_mode")
            self._utf8_is_utf8mb4 = "UTF8_IS_UTF8MB3" not in text_of(modes).upper()
        return self._utf8_is_utf8mb4

    def _read(self, number: int) -> str:
        with self.context.at_source(self.stop) as session:
            dialect = dialect_of(session)
            if dialect.is_mariadb and dialect.version >= _ALL_MARIADB:
                column, view = "FULL_COLLATION_NAME", "COLLATION_CHARACTER_SET_APPLICABILITY"
            else:
                column, view = "COLLATION_NAME", "COLLATIONS"
            found = rows(session, f"SELECT {column} FROM information_schema.{view} WHERE ID = %s", (number,))
        return text_of(found[0][0]) if found else ""


def has_former_name(name: str) -> bool:
    """Whether this is the character set utf8, or one of its collations."""
    return name.lower() == "utf8" or name.lower().startswith("utf8_")


@dataclass(frozen=True, slots=True)
class CharsetDefaults:
    """Default collations of character sets in the session of ``queried``."""

    queried: LoggedQuery
    names: CollationNames

    def of(self, charset: str) -> str:
        """The default collation of ``charset``, as SQL names it. Raises the source's coded errors."""
        queried, variables, charset = self.queried, self.queried.event.variables, self.named(charset.lower())
        for of, collation in self._pairs(variables.charset_collations):
            if charset_of(of) == charset:
                return collation
        if charset == "utf8mb4" and not queried.is_mariadb and queried.version >= _MYSQL_0900:
            number = variables.utf8mb4_collation
            return "utf8mb4_0900_ai_ci" if number is None else self.names.name(number)
        return first_collation(charset)

    def named(self, name: str) -> str:
        """The character set or collation, which may have the former name utf8, as the server of ``queried`` calls it.
        Raises the source's coded errors."""
        queried = self.queried
        if not has_former_name(name) or queried.version < _UTF8MB3_NAMED[queried.is_mariadb]:
            return name
        now = "utf8mb4" if queried.is_mariadb and self.names.utf8_is_utf8mb4() else "utf8mb3"
        return now + name[len("utf8") :]

    def _pairs(self, pairs: Iterable[tuple[int, int]]) -> Iterable[tuple[str, str]]:
        for of, collation in pairs:
            yield self.names.name(of), self.names.name(collation)
