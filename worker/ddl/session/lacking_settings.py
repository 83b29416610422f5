"""Finds why a statement cannot have its meaning at a target: a setting of its session that the target lacks. Pure."""

from __future__ import annotations

from shardmerge.proto.sql_lexer import Kind, tokens
from shardmerge.worker.core.mysql.target_dialect import TargetDialect
from shardmerge.worker.ddl.sql.statement import AlterTable, CreateTable, Ddl
from shardmerge.worker.ddl.sql.token_reader import keywords
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


_ORACLE_SINCE = (10, 3, 0)
"""The first MariaDB in which sql_mode=ORACLE changes what a statement means."""
