"""Translates a statement for a server of another kind (MySQL, MariaDB, TiDB)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from shardmerge.proto.sql_lexer import Token, edited, tokens
from shardmerge.worker.core.mysql.create_table import charset_of, retyped_item
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.mysql.target_dialect import TargetDialect
from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.sql.sequence_defaults import without_sequence_defaults
from shardmerge.worker.core.sql.table_text import element_kind
from shardmerge.worker.core.sql.token_reader import TokenReader
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.ddl.sql.alter_parser import add_list_elements
from shardmerge.worker.ddl.sql.create_body import body_of
from shardmerge.worker.ddl.sql.statement import AlterTable, CreateTable, parse_ddl
from shardmerge.worker.relay.model import Statement

FallbackCollations = Callable[[frozenset[str]], Mapping[str, str | None]]
"""Returns the fallback for each of some collations that the target lacks; None: there is none."""

_MARIADB_JSON = "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"


@dataclass(frozen=True, slots=True)
class Dialect:
    """The kinds of the two servers."""

    source_is_mariadb: bool
    target: TargetDialect
    fallback_collations: FallbackCollations

    def for_target(self, text: str, sql_mode: int) -> str:
        """The statement for the target: collations that it lacks are replaced, as in new tables; MariaDB's JSON, which
        is text in its row events, becomes text. DROP CONSTRAINT, which here names a unique key (the caller has checked
        that), becomes DROP KEY where the target needs it. A default that is a number of a sequence is left out, as in
        new tables (:func:`shardmerge.worker.core.sql.sequence_defaults.without_sequence_defaults`)."""
        text = without_sequence_defaults(text, sql_mode)
        found = tokens(text, sql_mode)
        replaced: list[tuple[Token, str]] = []
        collations = [(token, token.text.lower()) for token in _collations(found)]
        # A target without character sets has utf8mb4 for those that it lacks; each has a binary collation.
        charsets = [] if self.target.has_charsets else [(each, f"{each.text.lower()}_bin") for each in _charsets(found)]
        others = self._fallbacks({name for _, name in (*collations, *charsets)} - {"binary_bin"})
        replaced += [(token, others[name]) for token, name in collations if name in others]
        replaced += [(token, charset_of(others[name])) for token, name in charsets if name in others]
        if self.source_is_mariadb and not self.target.is_mariadb:
            types = declared_types(text, "?", sql_mode).values()
            replaced += [(token, _MARIADB_JSON) for token in types if token.is_word("JSON")]
        if not self.target.drops_keys_as_constraints:
            replaced += [(token, "KEY") for token in _dropped_constraints(text, sql_mode)]
        return edited(text, ((token.start, token.end, with_) for token, with_ in replaced))

    def _fallbacks(self, names: Set[str]) -> dict[str, str]:
        """The fallbacks of those of these collations that have one."""
        found: Mapping[str, str | None] = self.fallback_collations(frozenset(names)) if names else {}
        return {name: other for name, other in found.items() if other is not None}

    def lacking_charsets(self, text: str, sql_mode: int) -> tuple[str, ...]:
        """The character sets in the statement for which :meth:`for_target` puts another one."""
        if self.target.has_charsets:
            return ()
        found = tokens(text, sql_mode)
        names = {f"{token.text.lower()}_bin" for token in _charsets(found)} - {"binary_bin"}
        names.update(token.text.lower() for token in _collations(found))
        others = self._fallbacks(names)
        lacking = {charset_of(name) for name, other in others.items() if charset_of(other) != charset_of(name)}
        return tuple(sorted(lacking))

    def as_declared(self, table: Table, statement: Statement, collation: str, before: tuple[Column, ...] = ()) -> Table:
        """``table``, as the target describes it, with the columns that the statement declares as the source has them:
        JSON that is JSON at the source only, and the source's character sets, if the target has others.

        ``collation``: the table's default at the source, "" if it is not known. ``before``: the source's columns before
        the statement.
        """
        has_json = not self.source_is_mariadb and self.target.is_mariadb
        if self.target.has_charsets and not has_json:
            return table
        mode = statement.sql_mode or 0
        declared = _declarations(statement.text, statement.schema, mode)
        converts = self.converted_columns(before, statement)
        former = {column.name.lower(): column for column in before if column.name.lower() in converts}
        default = declared_collation(statement.text, statement.schema, mode) or collation

        def column(now: Column) -> Column:
            part = declared.get(now.name.lower())
            if part is None:
                was = former.get(now.name.lower())
                return now if was is None or not default else _converted(was, default)
            if has_json and part[0].is_word("JSON"):
                return replace(now, kind=ValueKind.JSON, type_text="json", charset="", collation="")
            if self.target.has_charsets or not now.charset or (part[0].is_word("JSON") and self.source_is_mariadb):
                return now
            found = _collation_of_column(part) or default
            return replace(now, charset=charset_of(found), collation=found) if found else now

        return replace(table, columns=tuple(map(column, table.columns)))

    def converted_columns(self, columns: Iterable[Column], statement: Statement) -> frozenset[str]:
        """Lower-case names of the text columns that the statement converts to another character set as a whole, at a
        target that does not show it."""
        if self.target.has_charsets:
            return frozenset()
        ddl = parse_ddl(statement.text, statement.schema, statement.sql_mode or 0)
        if not isinstance(ddl, AlterTable) or all(one.kind is not ClauseKind.CONVERT_CHARSET for one in ddl.clauses):
            return frozenset()
        return frozenset(column.name.lower() for column in columns if column.charset)

    def with_longer_texts(self, text: str, creation: CreateStatement, columns: Iterable[Column], sql_mode: int) -> str:
        """The statement, with the types that texts get by CONVERT TO CHARACTER SET where the target does not lengthen
        them. ``creation``, ``columns``: of the shard table before."""
        ddl = parse_ddl(text, "?", sql_mode)
        if self.target.lengthens_converted_texts or not isinstance(ddl, AlterTable):
            return text
        converts = next((one for one in ddl.clauses if one.kind is ClauseKind.CONVERT_CHARSET), None)
        default = declared_collation(text, "?", sql_mode) or creation.collation
        if converts is None or not default:
            return text
        others = {name.lower() for one in ddl.clauses for name in one.columns}
        items = [
            retyped_item(creation.text, was.name, was.type_text, _of(now))
            for was in columns
            if was.charset and was.name.lower() not in others
            if (now := _converted(was, default)).type_text != was.type_text
        ]
        longer = "".join(f", MODIFY COLUMN {item}" for item in items if item)
        return f"{text[: converts.end]}{longer}{text[converts.end :]}"

    def default_after(self, creation: CreateStatement, before: str, statement: Statement) -> CreateStatement:
        """``creation``, as the target describes the table after the statement, with its default collation at the
        source. ``before``: that default before the statement."""
        if self.target.has_charsets:
            return creation
        found = declared_collation(statement.text, statement.schema, statement.sql_mode or 0) or before
        return replace(creation, collation=found) if found else creation


def declared_collation(text: str, schema: str, sql_mode: int) -> str:
    """The default collation that a CREATE TABLE or ALTER TABLE gives its table, "" for none. For a character set
    without a collation: its binary one, for the default depends on the server."""
    ddl = parse_ddl(text, schema, sql_mode)
    found = tokens(text, sql_mode)
    parts: list[Sequence[Token]] = []
    if isinstance(ddl, CreateTable) and ddl.form == "columns":
        parts = [body_of(found, ddl)[1]]
    if isinstance(ddl, AlterTable):
        parts = [
            [token for token in found if clause.start <= token.start < clause.end]
            for clause in ddl.clauses
            if clause.kind in (ClauseKind.OPTION, ClauseKind.CONVERT_CHARSET)
        ]
    for part in reversed(parts):
        if named := _collation_among(part):
            return named
    return ""


def _collation_of_column(part: Sequence[Token]) -> str:
    """The collation that a column's declaration names, from its type on; "" for the table's default."""
    if part[0].is_word("NATIONAL", "NCHAR", "NVARCHAR"):
        return "utf8mb3_general_ci"
    return _collation_among(part)


_LONGER = {"tinytext": "text", "text": "mediumtext", "mediumtext": "longtext"}
_CHARACTER_BYTES = {
    **dict.fromkeys(("big5", "cp932", "euckr", "gb2312", "gbk", "sjis", "ucs2"), 2),
    **dict.fromkeys(("eucjpms", "ujis", "utf8", "utf8mb3"), 3),
    **dict.fromkeys(("gb18030", "utf16", "utf16le", "utf32", "utf8mb4"), 4),
}
"""Most bytes of a character (MySQL Reference Manual, "Supported Character Sets and Collations"); 1 in all others."""


def _converted(column: Column, collation: str) -> Column:
    """``column`` after CONVERT TO CHARACTER SET: a text becomes as long as is needed for as many characters (MySQL
    Reference Manual, "ALTER TABLE Statement", "Changing the Character Set")."""
    charset = charset_of(collation)
    grows = _CHARACTER_BYTES.get(charset, 1) > _CHARACTER_BYTES.get(column.charset, 1)
    type_text = _LONGER.get(column.type_text, column.type_text) if grows else column.type_text
    return replace(column, charset=charset, collation=collation, type_text=type_text)


def _of(column: Column) -> str:
    """The type of a text column, as SQL."""
    return f"{column.type_text} CHARACTER SET {column.charset} COLLATE {column.collation}"


_SHORT_CHARSETS = {"ASCII": "latin1", "UNICODE": "ucs2"}
"""Attributes of a column (MySQL Reference Manual, "String Data Type Syntax")."""


def _collation_among(part: Sequence[Token]) -> str:
    """The collation that tokens outside of parentheses name; for a character set alone: its binary one; "" for none."""
    charset = collation = ""
    depth = 0
    for at, token in enumerate(part):
        depth += token.is_symbol("(") - token.is_symbol(")")
        if depth:
            continue
        words = TokenReader(part[at:], "")
        if words.take("COLLATE"):
            words.take_symbol("=")
            collation = _name_at(words) or collation
        elif words.take("CHARSET") or words.take_all("CHARACTER", "SET"):
            words.take_symbol("=")
            charset = _name_at(words) or charset
        elif token.is_word(*_SHORT_CHARSETS) and at:
            charset = _SHORT_CHARSETS[token.text.upper()]
    return collation or (f"{charset}_bin" if charset not in ("", "binary") else charset)


def _name_at(words: TokenReader) -> str:
    """The name of a character set or collation, in lower case; "" for DEFAULT."""
    token = words.next
    return "" if token is None or not token.is_name or token.is_word("DEFAULT") else token.text.lower()


def _declarations(text: str, schema: str, sql_mode: int) -> dict[str, Sequence[Token]]:
    """The tokens of each column that the statement declares, from its type on, by lower-case name."""
    return {name: words.rest() for name, words in declared_columns(text, schema, sql_mode)}


def declared_types(text: str, schema: str, sql_mode: int) -> dict[str, Token]:
    """The first token of the type of each column that the statement declares, by lower-case name."""
    return {name: words.rest()[0] for name, words in declared_columns(text, schema, sql_mode)}


def declared_columns(text: str, schema: str, sql_mode: int) -> Iterator[tuple[str, TokenReader]]:
    """The columns that the statement declares: each lower-case name, with its tokens from the type on."""
    ddl = parse_ddl(text, schema, sql_mode)
    found = tokens(text, sql_mode)
    if isinstance(ddl, CreateTable) and ddl.form == "columns":
        for part in body_of(found, ddl)[0]:
            if element_kind(part) is ClauseKind.ADD_COLUMN:
                yield from _declared(TokenReader(part, ""))
    if isinstance(ddl, AlterTable):
        for clause in ddl.clauses:
            own = [token for token in found if clause.start <= token.start < clause.end]
            for part in _definitions(own, clause.kind):
                yield from _declared(part)


def _definitions(own: list[Token], kind: ClauseKind) -> Iterator[TokenReader]:
    """The column definitions in a clause, each from its name on."""
    if kind not in (ClauseKind.ADD_COLUMN, ClauseKind.CHANGE_COLUMN, ClauseKind.MODIFY_COLUMN):
        return
    parts = add_list_elements(own)
    for part in parts:
        if element_kind(part) is ClauseKind.ADD_COLUMN:
            yield TokenReader(part, "")
    if not parts:
        words = TokenReader(own, "")
        words.advance()
        words.take("COLUMN")
        words.exists()
        if kind is ClauseKind.CHANGE_COLUMN:
            words.advance()
        yield words


def _declared(words: TokenReader) -> Iterator[tuple[str, TokenReader]]:
    name = words.next
    words.advance()
    if name is not None and words.next is not None and name.is_name:
        yield name.text.lower(), words


def _dropped_constraints(text: str, sql_mode: int) -> Iterator[Token]:
    """The word CONSTRAINT in each DROP CONSTRAINT."""
    ddl = parse_ddl(text, "?", sql_mode)
    if not isinstance(ddl, AlterTable):
        return
    for clause in ddl.clauses:
        if clause.kind is ClauseKind.DROP_CONSTRAINT:
            found = (token for token in tokens(text, sql_mode) if clause.start <= token.start < clause.end)
            yield next(token for token in found if token.is_word("CONSTRAINT"))


def _collations(found: tuple[Token, ...]) -> Iterator[Token]:
    """The names of collations after COLLATE."""
    return _names_after(found, lambda words: words.take("COLLATE"))


def _charsets(found: tuple[Token, ...]) -> Iterator[Token]:
    """The names of character sets after CHARACTER SET and CHARSET."""
    return _names_after(found, lambda words: words.take("CHARSET") or words.take_all("CHARACTER", "SET"))


def _names_after(found: tuple[Token, ...], take: Callable[[TokenReader], bool]) -> Iterator[Token]:
    for at in range(len(found)):
        words = TokenReader(found[at:], "")
        if take(words):
            words.take_symbol("=")
            if words.next is not None and _name_at(words):
                yield words.next
