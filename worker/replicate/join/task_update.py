"""Applies an update of a subtask when its run starts: determines and records which tables have to join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from shardmerge.proto import config_pb2, failpoints
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, coded_errors, current_position, server_info
from shardmerge.worker.core.table import Table
from shardmerge.worker.replicate.join.table_changes import changes_of, tables_to_copy
from shardmerge.worker.replicate.join.table_join import drop_joining
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.rules import same_route
from shardmerge.worker.target.records import ddl_progress as ddl_records
from shardmerge.worker.target.records import parked_tables, subtask_record
from shardmerge.worker.target.records.history import interrupted_copies
from shardmerge.worker.target.records.joining_tables import Joining, keep_unchanged
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import Partitioning, partitioning_for
from shardmerge.worker.target.records.subtask_record import SubTaskRow
from shardmerge.worker.target.tables.make_targets import read_structures_and_creations
from shardmerge.worker.unit.run_context import who_of

log = get_logger()


class Coming(NamedTuple):
    """``joining``: the tables that have to join now; ``tables``: all recorded structures; ``update_waits``: the update
    begins once these tables have joined."""

    joining: Joining | None
    tables: tuple[Table, ...]
    update_waits: bool = False


@dataclass(frozen=True, slots=True)
class TaskUpdate:
    """The update that one run of the subtask may have to begin. ``token``: if it differs from the recorded one, the
    update has not begun; "" for none, as after stop-task and start-task. ``lanes``: how many the joining tables get."""

    config: config_pb2.SubTaskConfig
    token: str
    epoch: int
    rules: Rules
    lanes: int
    source_endpoint: Endpoint
    target_endpoint: Endpoint

    def coming(
        self, source: Session, target: Session, row: SubTaskRow, partitioning: Partitioning, tables: tuple[Table, ...]
    ) -> Coming:
        """The tables that have to join; begins an update that has not begun. ``partitioning``: includes the parked
        tables.

        Updates run one after the other: tables that an earlier one began to copy join first, except those that the
        rules now treat differently. Raises UPDATE_REMAPS, FENCED, the rules' errors and coded errors of the servers.
        """
        joining = Joining.from_json(row.joining)
        if joining is not None:
            left = keep_unchanged(joining, self.config.source_id, tables, self.rules)
            if left != joining:
                log.warning("tables no longer join", task=self.config.task, source=self.config.source_id)
                with coded_errors(self.target_endpoint, Side.TARGET, "target"):
                    drop_joining(target, who_of(self.config), self.epoch, joining, left)
            if left is not None:
                return Coming(left, tables, self.token not in ("", row.update_token))
        if self.token in ("", row.update_token):
            return Coming(None, tables)
        return self._begin(source, target, partitioning, tables)

    def still_parked(
        self, target: Session, partitioning: Partitioning, tables: tuple[Table, ...], parked: Mapping[int, Parked]
    ) -> dict[int, Parked]:
        """The parked tables whose route the rules leave unchanged; the others leave, as they would if they were not
        parked. Raises FENCED, coded errors of the target."""
        before = partitioning.compiled_rules()
        left = {number: item for number, item in parked.items() if same_route(tables[number], before, self.rules)}
        gone = parked.keys() - left.keys()
        if gone:
            names = [tables[number].full_name for number in sorted(gone)]
            log.warning(
                "tables are no longer parked", task=self.config.task, source=self.config.source_id, tables=names
            )
            who = who_of(self.config)

            def leave(session: Session) -> None:
                parked_tables.delete(session, who, gone)
                interrupted_copies.forget(session, who, interrupted_copies.read(session, who, gone))

            with coded_errors(self.target_endpoint, Side.TARGET, "target"):
                subtask_record.record_statement(target, who, self.epoch, {}, {}, leave)
        return left

    def _begin(self, source: Session, target: Session, partitioning: Partitioning, tables: tuple[Table, ...]) -> Coming:
        source_id = self.config.source_id
        with coded_errors(self.source_endpoint, Side.SOURCE, source_id):
            start = current_position(source, server_info(source))

            def begin_here() -> None:
                nonlocal start
                start = current_position(source, server_info(source))

            # The tables have these structures at the position: one that is altered later gets the DDL in its stream.
            found, creations = read_structures_and_creations(source, self.rules, source_id, begin_here)
        # Of a parked table, the source has the name that a later statement gave it.
        named = {item.number: item for item in partitioning.away}
        coming = {item.name for item in partitioning.away if item.number not in partitioning.shards}
        present = tuple(
            replace(table, schema=named[at].schema, name=named[at].table) if at in named else table
            for at, table in enumerate(tables)
        )
        wanted_tables = [table for table in found if (table.schema, table.name) not in coming]
        added = tables_to_copy(source_id, changes_of(source_id, present, partitioning, None, self.rules, wanted_tables))
        new = {plan.shard: plan.table for plan in added}
        joining = None
        if new:
            wanted = partitioning_for(self.config, self.lanes, ())
            joining = Joining(replace(wanted, shards=frozenset(new)), start)
        record = joining.to_json() if joining is not None else ""
        with coded_errors(self.target_endpoint, Side.TARGET, "target"):
            who = who_of(self.config)
            by_name = {table.full_name: creation for table, creation in zip(found, creations, strict=True)}
            described = {number: by_name[table.full_name] for number, table in new.items()}
            subtask_record.begin_update(
                target,
                who,
                self.epoch,
                self.token,
                record,
                new,
                lambda session: ddl_records.write_creations(session, who, described),
            )
        log.info(
            "update begins",
            task=self.config.task,
            source=source_id,
            joining=[table.full_name for table in new.values()],
            position=str(start),
        )
        failpoints.hit("update.begun")
        return Coming(joining, (*tables, *new.values()))
