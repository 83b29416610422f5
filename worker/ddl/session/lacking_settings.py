"""Finds why a statement cannot have its meaning at a target: a setting of its session that the target lacks. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from shardmerge.proto.sql_lexer import NO_BACKSLASH_ESCAPES, Kind, Token, tokens
from shardmerge.worker.binlog.rows.characters.character_set import character_set
from shardmerge.worker.binlog.rows.charsets import charset_of_id, is_utf8
from shardmerge.worker.core.mysql.target_dialect import TargetDialect
from shardmerge.worker.core.sql.token_reader import keywords
from shardmerge.worker.ddl.sql.statement import AlterTable, CreateTable, Ddl
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.relay.serve.query_event import LoggedQuery
from shardmerge.worker.target.records.statement_session import EMPTY_IS_NULL, MAXDB, ORACLE, known_modes

_OF_LOCALE = keywords("DATE_FORMAT DAYNAME MONTHNAME STR_TO_DATE TO_CHAR FORMAT")
"""Functions whose values depend on lc_time_names."""
_EMPTY = ("''", '""')


def lacking_setting(statement: Statement, ddl: Ddl, queried: LoggedQuery, target: TargetDialect) -> str:
    """The setting, and why the statement depends on it, as a phrase; "" if there is none."""
    if not isinstance(ddl, (AlterTable, CreateTable)):
        return ""  # it declares nothing whose meaning depends on the session
    variables = queried.event.variables
    if variables.unknown is not None:
        return f"its event has a setting that this version does not know (status variable {variables.unknown})"
    mode = variables.sql_mode or 0
    if unknown := mode & ~known_modes(is_mariadb=queried.is_mariadb):
        return f"its sql_mode has bits that this version does not know ({unknown:#x})"
    found = tokens(statement.text, mode)
    if literal := _of_client_bytes(found, queried.event.client_charset):
        return f"character_set_client={queried.event.client_charset}, whose bytes are the value of {literal}"
    if (
        mode & NO_BACKSLASH_ESCAPES
        and not queried.is_mariadb
        and "\\" in statement.text
        and _OF_SERVER.match(statement.text)
    ):
        return "sql_mode=NO_BACKSLASH_ESCAPES, which the source ignores in a CREATE TABLE that it writes"
    connection = charset_of_id(variables.connection) if variables.connection is not None else "utf8mb4"
    if _OF_SERVER.match(statement.text) and (literal := _not_in(connection, found)):
        return (
            f"collation_connection of {connection or 'an unknown character set'}, which lacks characters of {literal}: "
            "it has them in a CREATE TABLE that the source writes, and not in one of a client"
        )
    if queried.is_mariadb and mode & _OMITTING and _OF_SERVER.match(statement.text):
        return f"its sql_mode ({mode:#x}), under which the source omits collations from a CREATE TABLE that it writes"
    if queried.is_mariadb and not target.is_mariadb:
        if mode >> ORACLE & 1 and queried.version >= _ORACLE_SINCE:
            return "sql_mode=ORACLE, which gives types such as DATE another meaning and is not known at the target"
        if mode >> EMPTY_IS_NULL & 1 and any(each.kind is Kind.STRING and each.text in _EMPTY for each in found):
            return "sql_mode=EMPTY_STRING_IS_NULL, in which '' means NULL and which is not known at the target"
    if mode >> MAXDB & 1 and not target.is_mariadb and any(each.is_word("TIMESTAMP") for each in found):
        return "sql_mode=MAXDB, in which TIMESTAMP means DATETIME and which is not known at the target"
    if variables.time_names and not target.has_time_locale and any(each.is_word(*_OF_LOCALE) for each in found):
        return f"lc_time_names (number {variables.time_names}), which cannot be set at the target"
    return ""


def _of_client_bytes(found: Sequence[Token], client: str) -> str:
    """A literal whose value is the bytes that the client has sent, not their characters: the target would get other
    bytes for the same characters. "" for none.

    An introducer (_latin1'…', N'…') does not convert the bytes (MySQL Reference Manual, "Character Set Introducers").
    Neither does a client with the character set binary; comments are read as UTF-8.
    """
    if is_utf8(client):
        return ""
    for before, token in itertools.pairwise((Token(Kind.SYMBOL, "", 0, 0), *found)):
        if token.kind is not Kind.STRING or token.text.isascii():
            continue
        is_national = before.is_word("N") and before.end == token.start
        if is_national or (before.kind is Kind.WORD and before.text.startswith("_")):
            return f"{before.text}{token.text}"
        if client == "binary" and not before.is_word("COMMENT") and not before.is_symbol("="):
            return token.text
    return ""


def _not_in(charset: str, found: Sequence[Token]) -> str:
    """A literal with characters that the character set lacks, "" for none. Comments and literals with an introducer are
    not converted to that of the connection."""
    if is_utf8(charset):
        return ""
    known = character_set(charset)
    for before, token in itertools.pairwise((Token(Kind.SYMBOL, "", 0, 0), *found)):
        converted = not before.is_word("COMMENT") and not (before.kind is Kind.WORD and before.text.startswith("_"))
        if token.kind is not Kind.STRING or not converted or token.text.isascii():
            continue
        if known is None or known.encoded(token.text) is None:
            return token.text
    return ""


_OMITTING = sum(1 << bit for bit in (8, ORACLE, 10, 11, MAXDB, 14, 16, 17))
"""POSTGRESQL, ORACLE, MSSQL, DB2, MAXDB, NO_TABLE_OPTIONS, MYSQL323, MYSQL40 (show_create_table() in MariaDB's
sql/sql_show.cc)."""
_OF_SERVER = re.compile(r"CREATE TABLE .* \(\n  ")
"""How servers log CREATE TABLE … SELECT and CREATE TABLE … LIKE a temporary table."""
_ORACLE_SINCE = (10, 3, 0)
"""The first MariaDB in which sql_mode=ORACLE changes what a statement means."""
