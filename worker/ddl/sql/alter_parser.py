"""Parses ALTER TABLE into its clauses, on tokens. Pure.

MySQL Reference Manual, "ALTER TABLE Statement", "ALTER TABLE Partition Operations"; MariaDB, "ALTER TABLE",
"WAIT and NOWAIT". Only the kind of a clause and the names in it are read, not types, expressions and options.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardmerge.proto.sql_lexer import Token, edited, tokens
from shardmerge.worker.core.sql.clause import Clause, ClauseKind
from shardmerge.worker.core.sql.table_text import element_kind
from shardmerge.worker.core.sql.token_reader import (
    NameAt,
    NotUnderstoodError,
    TokenReader,
    keywords,
    read_object_kind,
    referenced_tables,
    split_at_commas,
)


def parse_clauses(words: TokenReader, table: NameAt) -> Iterator[Clause]:
    """The clauses after the table's name; MariaDB's WAIT there is one. Raises :class:`NotUnderstoodError`."""
    if how := words.wait():
        yield Clause(ClauseKind.HOW, how[0].start, how[-1].end)
    default_schema = words.default_schema
    found = [token for token in words.rest() if not token.is_symbol(";")]
    if not found:
        return
    for piece in _split(found):
        if not piece:
            raise NotUnderstoodError
        yield _Clause(piece, default_schema, table.schema).read()


def without_column_qualifiers(text: str, default_schema: str, sql_mode: int) -> str:
    """Return the ALTER TABLE without its table's name before the columns that it adds, drops or changes, or another
    statement unchanged.

    MariaDB and MySQL 5.7 accept ``MODIFY s.t.c INT``, MySQL 8 does not, and the table has another name at the target.
    """
    words = TokenReader(tokens(text, sql_mode), default_schema)
    try:
        if not words.take("ALTER") or read_object_kind(words).word != "TABLE":
            return text
        words.exists()
        table = words.table()
        words.wait()
        spans = [span for piece in _split(words.rest()) for span in _column_qualifiers(piece, table)]
    except NotUnderstoodError:
        return text
    return edited(text, ((start, end, "") for start, end in spans))


def _column_qualifiers(piece: Sequence[Token], table: NameAt) -> Iterator[tuple[int, int]]:
    """Where the qualifiers of a clause's columns begin and end in the text."""
    if parts := add_list_elements(piece):
        for part in parts:
            yield from _qualifier(TokenReader(part, ""), table)
        return
    words = TokenReader(piece, "")
    verb = words.word()
    if words.take("ADD", "ALTER", "CHANGE", "DROP", "MODIFY"):
        words.take("COLUMN")
        words.exists()
        yield from _qualifier(words, table)
        if verb == "CHANGE":
            words.name()
            yield from _qualifier(words, table)


def _qualifier(words: TokenReader, table: NameAt) -> Iterator[tuple[int, int]]:
    """[[schema .] table] . if it comes next; it is read."""
    following = words.rest()
    size = next((size for size in (4, 2) if len(following) > size and _is_qualifier(following[:size], table)), 0)
    if size:
        for _ in range(size):
            words.advance()
        yield following[0].start, following[size].start


def _is_qualifier(found: Sequence[Token], table: NameAt) -> bool:
    # The server executed the statement: where it distinguishes the case of names, this is the same table, too.
    written = [token.text.lower() for token in found[::2] if token.is_name]
    own = [table.schema.lower(), table.table.lower()][-len(found) // 2 :]
    return written == own and all(token.is_symbol(".") for token in found[1::2])


def add_list_elements(found: Sequence[Token]) -> list[Sequence[Token]]:
    """The parts of ADD [COLUMN] ( …, … ), none for any other clause."""
    words = TokenReader(found, "")
    if not words.take("ADD"):
        return []
    words.take("COLUMN")
    words.exists()
    first = words.at + 1
    return list(split_at_commas(found[first : words.at - 1])) if words.group() else []


_OPTIONS = keywords(
    "AUTOEXTEND_SIZE AUTO_INCREMENT AVG_ROW_LENGTH CHARACTER CHARSET CHECKSUM COLLATE COMMENT COMPRESSION CONNECTION "
    "DATA DEFAULT DELAY_KEY_WRITE ENCRYPTED ENCRYPTION ENCRYPTION_KEY_ID ENGINE ENGINE_ATTRIBUTE IETF_QUOTES INDEX "
    "INSERT_METHOD KEY_BLOCK_SIZE MAX_ROWS MIN_ROWS PACK_KEYS PAGE_CHECKSUM PAGE_COMPRESSED PAGE_COMPRESSION_LEVEL "
    "PASSWORD ROW_FORMAT SECONDARY_ENGINE SECONDARY_ENGINE_ATTRIBUTE STATS_AUTO_RECALC STATS_PERSISTENT "
    "STATS_SAMPLE_PAGES STORAGE TABLESPACE TABLE_CHECKSUM TRANSACTIONAL UNION"
)
_PARTITION_OPERATIONS = {
    **dict.fromkeys(("DROP", "TRUNCATE", "DISCARD", "IMPORT", "EXCHANGE", "CONVERT"), ClauseKind.PARTITION_ROWS),
    **dict.fromkeys(
        ("ADD", "REORGANIZE", "COALESCE", "REBUILD", "ANALYZE", "CHECK", "OPTIMIZE", "REPAIR"), ClauseKind.PARTITIONING
    ),
}
_HOW = (
    ("ALGORITHM",),
    ("LOCK",),
    ("FORCE",),
    ("WITH", "VALIDATION"),
    ("WITHOUT", "VALIDATION"),
    ("ENABLE", "KEYS"),
    ("DISABLE", "KEYS"),
)


_LAST = (("PARTITION", "BY"), ("REMOVE", "PARTITIONING"))


def _split(found: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Split at commas, and before PARTITION BY and REMOVE PARTITIONING, which follow the last clause without a
    comma."""
    for piece in split_at_commas(found, keep=_is_list):
        depth = 0
        for at, token in enumerate(piece):
            depth += token.is_symbol("(") - token.is_symbol(")")
            following = TokenReader(piece[at : at + 2], "")
            if at and not depth and any(following.take_all(*last) for last in _LAST):
                yield piece[:at]
                yield piece[at:]
                break
        else:
            yield piece


def _is_list(piece: Sequence[Token]) -> bool:
    """Whether the commas belong to a list (ORDER BY, names of partitions), after which no other clause follows."""
    return _is_word(piece, 0, "ORDER") or _is_word(piece, 1, "PARTITION")


class _Clause:
    """One clause being read."""

    def __init__(self, found: Sequence[Token], default_schema: str, schema: str) -> None:
        self._found = found
        self._words = TokenReader(found, default_schema)
        self._schema = schema

    def read(self) -> Clause:
        words = self._words
        if any(words.take_all(*how) for how in _HOW):
            return self._made(ClauseKind.HOW)
        first = words.word()
        if _is_word(self._found, 1, "PARTITION") and first in _PARTITION_OPERATIONS:
            words.advance()
            words.advance()
            return self._made(_PARTITION_OPERATIONS[first], names=self._partner(first))
        if any(words.take_all(*last) for last in _LAST):
            return self._made(ClauseKind.PARTITIONING)
        if words.take_all("DISCARD", "TABLESPACE") or words.take_all("IMPORT", "TABLESPACE"):
            return self._made(ClauseKind.PARTITION_ROWS)
        words.advance()
        match first:
            case "ADD":
                return self._add()
            case "DROP":
                return self._drop()
            case "ALTER":
                return self._alter()
            case "CHANGE":
                self._optional()
                old = self._column()
                return self._made(ClauseKind.CHANGE_COLUMN, columns=(old,), new_name=self._column(), refers=True)
            case "MODIFY":
                self._optional()
                return self._made(ClauseKind.MODIFY_COLUMN, columns=(self._column(),), refers=True)
            case "RENAME":
                return self._rename()
            case "CONVERT":
                if words.take("TABLE"):  # MariaDB: CONVERT TABLE t TO PARTITION p …
                    return self._made(ClauseKind.PARTITION_ROWS, names=(words.table(),))
                return self._made(ClauseKind.CONVERT_CHARSET if words.take("TO") else ClauseKind.OTHER)
            case "ORDER":
                return self._made(ClauseKind.ORDER_BY)
            case _:
                is_option = first in _OPTIONS or words.take_symbol("=")
                return self._made(ClauseKind.OPTION if is_option else ClauseKind.OTHER)

    def _made(
        self,
        kind: ClauseKind,
        *,
        columns: tuple[str, ...] = (),
        name: str = "",
        new_name: str = "",
        names: tuple[NameAt, ...] = (),
        refers: bool = False,
    ) -> Clause:
        if refers:
            names = tuple(referenced_tables(self._found, self._schema))
        return Clause(kind, self._found[0].start, self._found[-1].end, columns, name, new_name, names)

    def _optional(self) -> None:
        self._words.take("COLUMN")
        self._words.exists()

    def _column(self) -> str:
        name = self._words.name()
        if self._words.take_symbol("."):
            # [[schema .] table .] column: unusual, and the table name in it would not be replaced.
            raise NotUnderstoodError
        return name

    def _constraint(self, kind: ClauseKind) -> Clause:
        self._words.exists()
        return self._made(kind, name=self._words.name())

    def _partner(self, operation: str) -> tuple[NameAt, ...]:
        """EXCHANGE PARTITION p WITH TABLE t; MariaDB: CONVERT PARTITION p TO TABLE t"""
        words = self._words
        if operation not in ("EXCHANGE", "CONVERT"):
            return ()
        words.name()
        if not (words.take("WITH", "TO") and words.take("TABLE")):
            raise NotUnderstoodError
        return (words.table(),)

    def _add(self) -> Clause:
        words = self._words
        if words.take_all("SYSTEM", "VERSIONING"):
            return self._made(ClauseKind.SYSTEM_VERSIONING)
        kind = element_kind(self._found[1:])
        if kind is ClauseKind.ADD_CHECK and words.take("CONSTRAINT") and words.exists():
            return self._made(kind, name=words.name())
        if kind is not ClauseKind.ADD_COLUMN:
            return self._made(kind, refers=kind is ClauseKind.ADD_FOREIGN_KEY)
        self._optional()
        parts = [part for part in add_list_elements(self._found) if element_kind(part) is kind]
        if parts or self._words.take_symbol("("):
            columns = tuple(TokenReader(part, "").name() for part in parts)
        else:
            columns = (self._column(),)
        return self._made(kind, columns=columns, refers=True)

    def _drop(self) -> Clause:
        words = self._words
        if words.take("INDEX", "KEY"):
            return self._constraint(ClauseKind.DROP_INDEX)
        if words.take_all("FOREIGN", "KEY"):
            return self._constraint(ClauseKind.DROP_FOREIGN_KEY)
        if words.take("CHECK"):
            return self._constraint(ClauseKind.DROP_CHECK)
        if words.take("CONSTRAINT"):
            return self._constraint(ClauseKind.DROP_CONSTRAINT)
        if words.take("PRIMARY"):
            return self._made(ClauseKind.DROP_PRIMARY_KEY)
        if words.take_all("SYSTEM", "VERSIONING"):
            return self._made(ClauseKind.SYSTEM_VERSIONING)
        if words.take_all("PERIOD", "FOR") or words.take_all("PERIOD", "IF"):
            return self._made(ClauseKind.PERIOD)
        self._optional()
        column = self._column()
        words.take("RESTRICT", "CASCADE")
        return self._made(ClauseKind.DROP_COLUMN if words.at_end else ClauseKind.OTHER, columns=(column,))

    def _alter(self) -> Clause:
        words = self._words
        if words.take("INDEX", "KEY"):
            return self._constraint(ClauseKind.ALTER_INDEX)
        if words.take("CHECK", "CONSTRAINT"):
            return self._constraint(ClauseKind.ALTER_CHECK)
        self._optional()
        column = self._column()
        if words.take_all("SET", "DEFAULT"):
            kind = ClauseKind.SET_DEFAULT
        elif words.take_all("DROP", "DEFAULT"):
            kind = ClauseKind.DROP_DEFAULT
        else:  # MySQL: SET {VISIBLE | INVISIBLE}
            kind = ClauseKind.OTHER
        return self._made(kind, columns=(column,))

    def _rename(self) -> Clause:
        words = self._words
        kind = ClauseKind.RENAME_COLUMN
        if words.take("COLUMN") or words.word() in ("INDEX", "KEY"):
            if words.take("INDEX", "KEY"):
                kind = ClauseKind.RENAME_INDEX
            words.exists()
            old = words.name()
            if not words.take("TO"):
                raise NotUnderstoodError
            new = words.name()
            if kind is ClauseKind.RENAME_INDEX:
                return self._made(kind, name=old, new_name=new)
            return self._made(kind, columns=(old,), new_name=new)
        if not words.take("TO", "AS"):
            words.take_symbol("=")
        return self._made(ClauseKind.RENAME_TABLE, names=(words.table(),))


def _is_word(found: Sequence[Token], at: int, *words: str) -> bool:
    return at < len(found) and found[at].is_word(*words)
