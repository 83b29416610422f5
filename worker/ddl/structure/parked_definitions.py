"""Keeps the structures that parked shard tables have after the statements at which they are parked."""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.sql.table_definition import TableDefinition, parse_table_definition
from shardmerge.worker.ddl.structure.schema_tracker import SchemaTracker
from shardmerge.worker.ddl.structure.structure_after import StructureMemo, parked_structure_after
from shardmerge.worker.target.records.parked_tables import Parked


@dataclass(frozen=True, slots=True)
class _Known:
    """``definition``: of a table of structure ``creation`` after the statement at which it is ``parked``; None: the
    statement cannot run on it."""

    creation: CreateStatement
    parked: Parked
    definition: TableDefinition | None


class ParkedDefinitions:
    """For one thread. ``memo``: of the target and the kind of source."""

    def __init__(self, memo: StructureMemo) -> None:
        self._memo = memo
        self._known: dict[tuple[str, int], _Known] = {}
        self._definitions: dict[CreateStatement, TableDefinition] = {}

    def find(
        self, plan: TablePlan, creation: CreateStatement | None, item: Parked, tracker: SchemaTracker, task: str
    ) -> TableDefinition | None:
        """The structure of ``plan``'s table after the statement at which it is parked; equal ones are one object. None:
        unknown. ``creation``: its recorded structure. Raises ``pymysql.MySQLError``."""
        if creation is None:
            return None
        known = self._known.get((plan.source, plan.shard))
        if known is None or known.creation is not creation or known.parked is not item:
            definition = self._compute(plan, creation, item, tracker, task)
            known = self._known[plan.source, plan.shard] = _Known(creation, item, definition)
        return known.definition

    def _compute(
        self, plan: TablePlan, creation: CreateStatement, item: Parked, tracker: SchemaTracker, task: str
    ) -> TableDefinition | None:
        try:
            after = parked_structure_after(tracker, plan, creation, item, task, self._memo).creation
        except ShardmergeError as error:
            if error.spec is not errors.ddl.STRUCTURE_REFUSES:
                raise
            return None
        if after not in self._definitions:
            self._definitions[after] = parse_table_definition(after)
        return self._definitions[after]
