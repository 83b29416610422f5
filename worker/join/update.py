"""An update of a running subtask, as its run finds it: which tables are to join it now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from proto import config_pb2, hooks
from proto.log import get_logger
from worker import meta
from worker.connection import Endpoint, Session, Side, coding, current_position, server_info
from worker.context import who_of
from worker.ddl import parked as parked_tables
from worker.ddl import records as ddl_records
from worker.ddl.parked import Parked
from worker.join.change import changes_of, coming, stays
from worker.join.join import drop_joining
from worker.join.record import Joining, kept
from worker.meta import SubTaskRow
from worker.plans import read_described
from worker.replicate.dealing import Dealing, dealing_of
from worker.rules import Rules
from worker.table import Table

log = get_logger()


@dataclass(frozen=True, slots=True)
class Update:
    """What one run of the subtask was asked for. ``token``: another one than recorded is an update not begun
    yet; "" for none, as after stop-task and start-task. ``lanes``: that joining tables get."""

    config: config_pb2.SubTaskConfig
    token: str
    epoch: int
    rules: Rules
    lanes: int
    source_endpoint: Endpoint
    target_endpoint: Endpoint

    def joining(
        self, source: Session, target: Session, row: SubTaskRow, dealing: Dealing, tables: tuple[Table, ...]
    ) -> tuple[Joining | None, tuple[Table, ...]]:
        """The tables that are to join now, and all recorded structures; an update that was not begun yet begins.
        ``dealing``: with the tables that wait before sharding DDLs.

        One update after the other: what an earlier one began to copy joins first, but for tables that the rules
        now want otherwise. Raises UPDATE_REMAPS, FENCED, the rules' errors and coded errors of the servers.
        """
        joining = Joining.from_json(row.joining)
        if joining is not None:
            left = kept(joining, self.config.source_id, tables, self.rules)
            if left != joining:
                log.warning("tables no longer join", task=self.config.task, source=self.config.source_id)
                with coding(self.target_endpoint, Side.TARGET, "target"):
                    drop_joining(target, who_of(self.config), self.epoch, joining, left)
            if left is not None:
                return left, tables
        if not self.token or self.token == row.update_token:
            return None, tables
        return self._begin(source, target, dealing, tables)

    def still_waiting(
        self, target: Session, dealing: Dealing, tables: tuple[Table, ...], parked: Mapping[int, Parked]
    ) -> dict[int, Parked]:
        """Of the tables that wait before sharding DDLs those that the rules leave where they are; the others leave, as
        they would if they did not wait. Raises FENCED, coded errors of the target."""
        before = dealing.compiled_rules()
        left = {number: item for number, item in parked.items() if stays(tables[number], before, self.rules)}
        gone = parked.keys() - left.keys()
        if gone:
            names = [tables[number].full_name for number in sorted(gone)]
            log.warning("tables wait no more", task=self.config.task, source=self.config.source_id, tables=names)
            who = who_of(self.config)
            with coding(self.target_endpoint, Side.TARGET, "target"):
                meta.pass_statement(
                    target, *who, self.epoch, {}, {}, lambda session: parked_tables.forget(session, *who, gone)
                )
        return left

    def _begin(
        self, source: Session, target: Session, dealing: Dealing, tables: tuple[Table, ...]
    ) -> tuple[Joining | None, tuple[Table, ...]]:
        source_id = self.config.source_id
        with coding(self.source_endpoint, Side.SOURCE, source_id):
            # First: a table altered after it meets its DDL in its stream.
            start = current_position(source, server_info(source))
            found, creations = read_described(source, self.rules, source_id)
        comes = coming(source_id, changes_of(source_id, tables, dealing, None, self.rules, found))
        new = {plan.shard: plan.table for plan in comes}
        joining = None
        if new:
            wanted = dealing_of(self.config, self.lanes, ())
            joining = Joining(replace(wanted, shards=frozenset(new)), start)
        record = joining.to_json() if joining is not None else ""
        with coding(self.target_endpoint, Side.TARGET, "target"):
            who = who_of(self.config)
            by_name = {table.full_name: creation for table, creation in zip(found, creations, strict=True)}
            described = {number: by_name[table.full_name] for number, table in new.items()}
            meta.begin_update(
                target,
                *who,
                self.epoch,
                self.token,
                record,
                new,
                lambda session: ddl_records.write_creations(session, *who, described),
            )
        log.info(
            "update begins",
            task=self.config.task,
            source=source_id,
            joining=[table.full_name for table in new.values()],
            position=str(start),
        )
        hooks.reach("update.begun")
        return joining, (*tables, *new.values())
