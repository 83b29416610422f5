"""Executes a statement that an operator has overridden."""

from __future__ import annotations

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.ddl.decide.actions import (
    Action,
    Alter,
    Create,
    DdlContext,
    Drop,
    Rename,
    Truncate,
    actions_of,
    renames_of,
)
from shardmerge.worker.ddl.decide.operator_override import OperatorOverride
from shardmerge.worker.ddl.execute.executor import StatementExecutor
from shardmerge.worker.ddl.execute.operator_run import run_operator_statements
from shardmerge.worker.ddl.sql.statement import Ddl
from shardmerge.worker.relay.model import Statement


def actions_with_override(
    override: OperatorOverride, ddl: Ddl | None, statement: Statement, scene: DdlContext
) -> tuple[Action, ...]:
    """The statement's actions. Pure. Raises what :func:`actions_of` raises, if the original is to run."""
    if ddl is None:
        return ()
    try:
        return actions_of(ddl, statement, scene)
    except ShardmergeError:
        if override.runs_original:
            raise
        # The operator has decided about a statement that cannot run. A shard table that it renames is no longer the
        # table of its old name, which another table may have now.
        return renames_of(ddl, scene)


def apply_override(override: OperatorOverride, actions: tuple[Action, ...], executor: StatementExecutor) -> None:
    """Run the operator's statements at the target, and the original if the override says so. The shard tables'
    structures follow the source in any case. Raises what the executor's methods raise."""
    if not any(isinstance(action, Alter) for action in actions):
        run_operator_statements(executor.context, override.texts)
    for action in actions:
        match action:
            case Alter():
                executor.alter_with_override(action, override)
            case _ if override.runs_original:
                executor.run(action)
            case Create():
                executor.create(action, by_operator=True)  # its rows will arrive: the target must be able to take them
            case Drop(shard=shard):
                executor.detach(shard)
            case Rename(moves=moves):
                for shard, _ in moves:
                    executor.detach(shard)
            case Truncate():
                pass
