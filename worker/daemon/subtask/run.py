"""One run of a subtask under one epoch: takes over the records at the target, then runs unit after unit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from pymysql.constants import ER

from shardmerge.proto import config_pb2, errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Session, dialect_of, server_info
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.daemon.mixed_rows import with_checked_way_out
from shardmerge.worker.daemon.subtask.phases.begin import begin
from shardmerge.worker.daemon.subtask.phases.finish import finished_outcome, read_stop_search
from shardmerge.worker.daemon.subtask.phases.remove_earlier_rows import remove_earlier_rows
from shardmerge.worker.daemon.subtask.phases.replicate_phase import replicate
from shardmerge.worker.daemon.subtask.phases.snapshot_phase import copy
from shardmerge.worker.daemon.subtask.run_config import with_target_facts
from shardmerge.worker.daemon.subtask.run_resources import RunObserver, RunResources
from shardmerge.worker.daemon.subtask.source_context import SourceContext
from shardmerge.worker.relay.fetch.server_id import server_of
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.records import subtask_record
from shardmerge.worker.target.records.partitioning import Partitioning
from shardmerge.worker.target.records.schema import ensure_meta, missing_tables
from shardmerge.worker.target.records.subtask_record import Phase, SubTaskRow
from shardmerge.worker.target.renames import target_renames
from shardmerge.worker.target.renames.rename_target import settle
from shardmerge.worker.target.renames.target_renames import RenameState
from shardmerge.worker.unit.contract import Failed, Finished, Outcome, Stopped

_RECORDS_DIFFER = (errors.replicate.FENCED, errors.snapshot.CHUNK_FORGOTTEN)


class SubTaskRun:
    """One run of a subtask; used by one thread."""

    def __init__(
        self,
        config: config_pb2.SubTaskConfig,
        meta_token: str,
        update_token: str,
        host: SourceContext,
        owner: RunObserver,
    ) -> None:
        self._meta_token = meta_token
        self._resources = RunResources.open(config, update_token, host, owner)
        self._epoch = 0

    def run(self, stop: StopSignal) -> Outcome:
        """Run until finished, stopped or failed; raises only programming errors."""
        try:
            outcome = self._run(stop)
        except ShardmergeError as error:
            outcome = Failed(error)
        if isinstance(outcome, Failed) and _names_missing_table(outcome.error):
            outcome = Failed(self._records_lost() or outcome.error)
        if isinstance(outcome, Failed) and outcome.error.spec in _RECORDS_DIFFER:
            outcome = Failed(self._transactions_lost() or outcome.error)
        if isinstance(outcome, Failed):
            # What finds an error in a row or in the relay log does not know the task, which the way out names.
            config = self._resources.config
            error = outcome.error.completed(task=config.task, source=config.source_id)
            return Failed(with_checked_way_out(error, (config,)))
        return outcome

    def _run(self, stop: StopSignal) -> Outcome:
        resources = self._resources
        host, owner = resources.host, resources.owner
        with ExitStack() as sessions:
            target = resources.target(sessions)
            with resources.coded_target_errors():
                config = with_target_facts(resources.config, dialect_of(target))
                server = self._check_records(target)
            self._resources = resources = replace(resources, config=config)
            rules = Rules.from_config(config)

            def acquire(above: int) -> int:
                found = host.epochs.acquire(config.task, resources.source_id, above, server)
                owner.epoch_acquired(found)
                return found

            with resources.coded_target_errors():
                ensure_meta(target, config.meta_schema)
                settle(target, config.meta_schema, config.task)
                row = subtask_record.take_over(target, resources.who, acquire, self._meta_token)
                _check_names(target, resources, rules, row)
            self._epoch = epoch = row.epoch
            if row.starts_over:
                if not remove_earlier_rows(resources, target, rules, epoch, row, stop):
                    return Stopped()
                held, epoch = epoch, acquire(epoch)
                with resources.coded_target_errors():
                    row = subtask_record.start_over(target, resources.who, held, epoch)
            elif row.is_before_copy:
                row = _read_again(resources, target, row, acquire)
                epoch = row.epoch
            self._epoch = epoch
            phase = row.phase
            if phase is Phase.FINISHED:
                outcome = finished_outcome(resources, target, epoch)
                if outcome is not None:
                    return outcome
                phase = Phase.REPLICATE
            host.relay.start()  # again, after an error that an operator has corrected
            owner.phase_known(fresh=phase is Phase.NEW)
            source = resources.source(sessions)
            stop_search = read_stop_search(resources, source, target, epoch, phase)
            if phase is Phase.NEW or row.start is None:
                begin(resources, source, target, rules, epoch, stop)
                owner.phase_known(fresh=False)
        while True:
            row = resources.row()
            match row.phase:
                case Phase.SNAPSHOT:
                    outcome = copy(resources, rules, epoch, row, stop)
                case Phase.REPLICATE:
                    outcome = replicate(resources, rules, epoch, row, stop_search, stop)
                case _:
                    return Finished()
            if outcome is not None:
                return outcome

    def _check_records(self, target: Session) -> str:
        """Check that the target has the records of a subtask that has run before. Return the target's server.

        Behind a proxy or a name that moves another server may answer after a failure. A replica has the rows and the
        records of one moment, and the subtask continues there from its records. A server without records would get a
        second history, while the first one stays where it is. Where another person has dropped the records, the history
        would be copied once more into the tables that have it: a table without a key would get each row twice.

        Raises TARGET_WITHOUT_RECORDS, RECORDS_LOST, ETCD_UNAVAILABLE and ``pymysql.MySQLError``.
        """
        who = self._resources.who
        host, port = self._resources.config.target.host, self._resources.config.target.port
        # The server that had the records at the start of the run before, "": none since the last start-task.
        before = self._resources.host.epochs.target_of(who.task, who.source)
        now = server_of(server_info(target))
        row = subtask_record.find_row(target, who)
        if row is None and before not in ("", now):
            raise errors.replicate.TARGET_WITHOUT_RECORDS(
                task=who.task, source=who.source, host=host, port=port, schema=who.schema, before=before, now=now
            )
        missing: list[str] = []
        if row is None:
            missing = [] if before == "" else ["its row of subtask"]
        elif row.phase is not Phase.NEW and not subtask_record.is_start_over(target, who, self._meta_token):
            copies = row.phase is Phase.SNAPSHOT or bool(row.joining)
            missing = [f"the table {name}" for name in missing_tables(target, who.schema, copies=copies)]
        if missing:
            raise errors.replicate.RECORDS_LOST(
                task=who.task, source=who.source, host=host, port=port, schema=who.schema, missing=", ".join(missing)
            )
        return now

    def _transactions_lost(self) -> ShardmergeError | None:
        """The error of a target that lacks what this run has written: its records have no newer epoch, and no two runs
        have the same one (:func:`subtask_record.take_over`). None: another run has taken over, or the target does not
        answer."""
        resources = self._resources
        try:
            with resources.at_target() as target:
                row = subtask_record.find_row(target, resources.who)
        except ShardmergeError:
            return None
        if row is None or row.epoch > self._epoch:
            return None
        return errors.replicate.TARGET_WENT_BACK(
            task=resources.who.task,
            source=resources.who.source,
            host=resources.config.target.host,
            port=resources.config.target.port,
            epoch=self._epoch,
            recorded=row.epoch,
        )

    def _records_lost(self) -> ShardmergeError | None:
        """The error of records that were dropped during the run; None: they are there, or the target does not
        answer."""
        try:
            with self._resources.at_target() as target:
                self._check_records(target)
        except ShardmergeError as error:
            return error if error.spec is errors.replicate.RECORDS_LOST else None
        return None


def _names_missing_table(error: ShardmergeError) -> bool:
    missing = {str(ER.NO_SUCH_TABLE), str(ER.BAD_DB_ERROR)}
    return error.spec is errors.replicate.TARGET_STATEMENT and error.values.get("errno") in missing


def _check_names(target: Session, resources: RunResources, rules: Rules, row: SubTaskRow) -> None:
    """Check that no target table of the task is being renamed, and that the file has the new name of one that was.
    Called after the epoch was taken over: no rename begins without seeing it. Raises RENAME_UNDER_WAY,
    RENAME_UNPUBLISHED and ``pymysql.MySQLError``."""
    config = resources.config
    rename = target_renames.read(target, config.meta_schema, config.task)
    if rename is None:
        return
    if rename.state is RenameState.BEGUN:
        raise errors.replicate.RENAME_UNDER_WAY(task=config.task)
    recorded = Partitioning.from_json(row.partitioning)
    tables = subtask_record.read_tables(target, resources.who)
    plans = recorded.plans(resources.source_id, tables) if recorded is not None else ()
    routes = [rules.route(plan.table.schema, plan.table.name) for plan in plans if plan.target == rename.after]
    names = {(route.target_schema, route.target_table) for route in routes if route is not None}
    if rename.before.names in names:
        raise errors.replicate.RENAME_UNPUBLISHED(
            task=config.task, before=rename.before.quoted, after=rename.after.quoted
        )
    if rename.after.names in names:
        # The master stores the file for all sources at once, so all have the new name.
        target_renames.delete(target, config.meta_schema, config.task)


def _read_again(resources: RunResources, target: Session, row: SubTaskRow, acquire: Callable[[int], int]) -> SubTaskRow:
    """``row``, or phase NEW if nothing is copied: an operator may have changed the tables, because they did not fit the
    target."""
    with resources.coded_target_errors():
        if subtask_record.has_chunks(target, resources.who):
            return row
        return subtask_record.begin_again(target, resources.who, row.epoch, acquire(row.epoch))
