"""Reads a statement as its server read it, with the operator's override of it."""

from __future__ import annotations

from dataclasses import replace

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.core.mysql.create_table import charset_of
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.ddl.decide.ddl_filter import skips_unknown
from shardmerge.worker.ddl.decide.operator_override import OperatorOverride, Ops, override_at
from shardmerge.worker.ddl.decide.routed_statements import short_text, tables_text
from shardmerge.worker.ddl.session.collation_names import CharsetDefaults, CollationNames, has_former_name
from shardmerge.worker.ddl.session.schema_defaults import SchemaDefaults
from shardmerge.worker.ddl.session.written_collations import with_collations, with_present_names
from shardmerge.worker.ddl.sql.alter_parser import without_column_qualifiers
from shardmerge.worker.ddl.sql.statement import Ddl, parse_ddl
from shardmerge.worker.ddl.sql.statement_scope import classify
from shardmerge.worker.ddl.sql.version_comments import Server, expand_version_comments
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.relay.serve.query_event import LoggedQuery
from shardmerge.worker.unit.run_context import RunContext


def override_for(context: RunContext, ops: Ops, statement: Statement) -> OperatorOverride | None:
    """The operator's override of the statement; None: there is none."""
    overrides = ops()
    if not overrides:
        return None
    end = context.relay.position_at(statement.group_end)
    return override_at(overrides, statement.position, end, statement.sql_mode or 0)


def read_statement(
    context: RunContext,
    statement: Statement,
    queried: LoggedQuery,
    override: OperatorOverride | None,
    stop: StopSignal,
) -> tuple[Statement, Ddl | None]:
    """The statement as its server read it, parsed, with the collations that it means; None: it changes nothing, or an
    override replaces it.

    Raises ROWS_BY_STATEMENT, STATEMENT_UNKNOWN, SCHEMA_DEFAULT_UNKNOWN and the source's coded errors.
    """
    if not queried.event.variables.has_ended:
        # MariaDB may log an ALTER when it begins: it logs the statement again at its end, unless it failed.
        return statement, None
    server = Server(queried.is_mariadb, queried.version)
    mode = statement.sql_mode or 0
    text = expand_version_comments(statement.text, mode, server)
    as_read = replace(statement, text=without_column_qualifiers(text, statement.schema, mode))
    if override is not None:
        ddl = parse_ddl(as_read.text, as_read.schema, as_read.sql_mode)
        return (
            (as_read, ddl)
            if ddl is None or not override.runs_original
            else _written(context, as_read, ddl, queried, stop)
        )
    ddl = _parsed(context, as_read)
    return (as_read, None) if ddl is None else _written(context, as_read, ddl, queried, stop)


def _written(
    context: RunContext, statement: Statement, ddl: Ddl, queried: LoggedQuery, stop: StopSignal
) -> tuple[Statement, Ddl | None]:
    """The statement with the collations that it leaves to its server."""
    mode = statement.sql_mode or 0
    defaults = CharsetDefaults(queried, CollationNames(context, stop))
    text = statement.text
    if queried.is_mariadb and "utf8" in text.lower().replace("utf8mb", ""):
        # At a MySQL utf8 always means utf8mb3.
        text = with_present_names(text, mode, lambda name: defaults.named(name) if has_former_name(name) else name)
        ddl = parse_ddl(text, statement.schema, mode) or ddl
    text = with_collations(
        text,
        ddl,
        mode,
        defaults.of,
        lambda schema: _keyword_default(context, statement, schema, defaults, stop),
    )
    if text == statement.text:
        return statement, ddl
    return replace(statement, text=text), parse_ddl(text, statement.schema, mode)


def _keyword_default(
    context: RunContext, statement: Statement, schema: str, defaults: CharsetDefaults, stop: StopSignal
) -> str:
    """The collation that CHARACTER SET DEFAULT means for a table of ``schema``.

    MariaDB: the default collation of the character set that the table's schema has. MySQL: collation_database, which is
    the default of the session's current schema unless the session has set it (seen of MariaDB 10.11 and MySQL 9.7).
    """
    variables = defaults.queried.event.variables
    if defaults.queried.is_mariadb:
        return defaults.of(charset_of(SchemaDefaults().collation(context, statement, schema, stop)))
    number = variables.database if statement.schema or variables.database is not None else variables.server
    if number is not None:
        return defaults.names.name(number)
    return SchemaDefaults().collation(context, statement, statement.schema, stop)


def _parsed(context: RunContext, statement: Statement) -> Ddl | None:
    scope = classify(statement.text, statement.schema, statement.sql_mode)
    if scope.kind == "dml":
        raise refusal(context, errors.ddl.ROWS_BY_STATEMENT, statement, tables=tables_text(statement))
    if scope.kind == "ignored":
        return None
    ddl = parse_ddl(statement.text, statement.schema, statement.sql_mode)
    if ddl is None and not skips_unknown(context.rules.events, statement, *context.who[1:]):
        raise unknown_statement_error(context, statement)
    return ddl


def unknown_statement_error(context: RunContext, statement: Statement) -> ShardmergeError:
    return refusal(context, errors.ddl.STATEMENT_UNKNOWN, statement)


def refusal(context: RunContext, spec: ErrorSpec, statement: Statement, **more: object) -> ShardmergeError:
    """An error of ``spec`` with the values that every refused statement has, and ``more``."""
    _, task, source = context.who
    return spec(source=source, task=task, position=statement.position, statement=short_text(statement), **more)
