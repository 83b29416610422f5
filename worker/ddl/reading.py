"""A statement as its server read it, and what an operator has said about it."""

from __future__ import annotations

from dataclasses import replace

from proto import errors
from proto.errors import ErrorSpec, ShardmergeError
from worker.context import SubTaskContext
from worker.ddl.filtered import unknown_is_passed_over
from worker.ddl.operator import Ops, Word, word_on
from worker.ddl.routed import shown, touched
from worker.ddl.scope import classify
from worker.ddl.statement import Ddl, parse_ddl
from worker.ddl.versioned import Server, unwrapped
from worker.relay.model import Statement
from worker.relay.queried import Queried


def word_about(context: SubTaskContext, ops: Ops, statement: Statement) -> Word | None:
    """What an operator has said; None: nothing."""
    told = ops()
    if not told:
        return None
    end = context.relay.position_at(statement.group_end)
    return word_on(told, statement.position, end, statement.sql_mode or 0)


def read(
    context: SubTaskContext, statement: Statement, queried: Queried, word: Word | None
) -> tuple[Statement, Ddl | None]:
    """The statement as its server read it; None: it changes nothing, or an operator answers for it.

    Raises ROWS_BY_STATEMENT, STATEMENT_UNKNOWN.
    """
    if not queried.event.variables.has_ended:
        # MariaDB may log an ALTER as it begins: it comes again, unless it failed.
        return statement, None
    server = Server(queried.is_mariadb, queried.version)
    as_read = replace(statement, text=unwrapped(statement.text, statement.sql_mode or 0, server))
    if word is not None:
        return as_read, parse_ddl(as_read.text, as_read.schema, as_read.sql_mode)
    return as_read, _parsed(context, as_read)


def _parsed(context: SubTaskContext, statement: Statement) -> Ddl | None:
    scope = classify(statement.text, statement.schema, statement.sql_mode)
    if scope.kind == "dml":
        raise refusal(context, errors.ddl.ROWS_BY_STATEMENT, statement, tables=touched(statement))
    if scope.kind == "ignored":
        return None
    ddl = parse_ddl(statement.text, statement.schema, statement.sql_mode)
    if ddl is None and not unknown_is_passed_over(context.rules.events, statement, *context.who[1:]):
        raise not_understood(context, statement)
    return ddl


def not_understood(context: SubTaskContext, statement: Statement) -> ShardmergeError:
    return refusal(context, errors.ddl.STATEMENT_UNKNOWN, statement)


def refusal(context: SubTaskContext, spec: ErrorSpec, statement: Statement, **more: object) -> ShardmergeError:
    """``spec`` with what every refusal of a statement names, and ``more``."""
    _, task, source = context.who
    return spec(source=source, task=task, position=statement.position, statement=shown(statement), **more)
