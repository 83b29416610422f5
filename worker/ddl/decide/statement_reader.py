"""Reads a statement as its server read it, with the operator's override of it."""

from __future__ import annotations

from dataclasses import replace

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.ddl.decide.ddl_filter import skips_unknown
from shardmerge.worker.ddl.decide.operator_override import OperatorOverride, Ops, override_at
from shardmerge.worker.ddl.decide.routed_statements import short_text, tables_text
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
    context: RunContext, statement: Statement, queried: LoggedQuery, override: OperatorOverride | None
) -> tuple[Statement, Ddl | None]:
    """The statement as its server read it, parsed; None: it changes nothing, or an override replaces it.

    Raises ROWS_BY_STATEMENT, STATEMENT_UNKNOWN.
    """
    if not queried.event.variables.has_ended:
        # MariaDB may log an ALTER when it begins: it logs the statement again at its end, unless it failed.
        return statement, None
    server = Server(queried.is_mariadb, queried.version)
    mode = statement.sql_mode or 0
    text = expand_version_comments(statement.text, mode, server)
    as_read = replace(statement, text=without_column_qualifiers(text, statement.schema, mode))
    if override is not None:
        return as_read, parse_ddl(as_read.text, as_read.schema, as_read.sql_mode)
    return as_read, _parsed(context, as_read)


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
