"""One run of a subtask under one epoch: takes over at the target, then unit after unit."""

from __future__ import annotations

from contextlib import ExitStack

from proto import config_pb2
from proto.errors import ShardmergeError
from worker import meta
from worker.host import Host
from worker.meta import Phase
from worker.rules import Rules
from worker.run.begin import begin
from worker.run.copying import copy
from worker.run.end import ended, read_ending
from worker.run.means import Means, Owner
from worker.run.replicating import replicate
from worker.unit import Failed, Finished, Outcome, StopSignal


class SubTaskRun:
    """Made for one run, used by one thread."""

    def __init__(
        self,
        config: config_pb2.SubTaskConfig,
        meta_token: str,
        update_token: str,
        host: Host,
        owner: Owner,
    ) -> None:
        self._meta_token = meta_token
        self._means = Means.of(config, update_token, host, owner)

    def run(self, stop: StopSignal) -> Outcome:
        """Until finished, stopped or failed; raises nothing but programming errors."""
        try:
            return self._run(stop)
        except ShardmergeError as error:
            return Failed(error)

    def _run(self, stop: StopSignal) -> Outcome:
        means = self._means
        config, host, owner = means.config, means.host, means.owner
        rules = Rules.from_config(config)
        with ExitStack() as sessions:
            target = means.target(sessions)
            epoch = host.epochs.acquire(config.task, means.source_id)
            owner.epoch_acquired(epoch)
            with means.coding_target():
                meta.ensure_meta(target, config.meta_schema)
                row = meta.take_over(target, *means.who, epoch, self._meta_token)
            phase = row.phase
            if phase is Phase.FINISHED:
                outcome = ended(means, target, epoch)
                if outcome is not None:
                    return outcome
                phase = Phase.REPLICATE
            host.relay.start()  # again, after an error that an operator had to mend
            owner.phase_known(fresh=phase is Phase.NEW)
            source = means.source(sessions)
            ending = read_ending(means, source, target, epoch, phase)
            if phase is Phase.NEW or row.start is None:
                begin(means, source, target, rules, epoch, stop)
                owner.phase_known(fresh=False)
        while True:
            row = means.row()
            match row.phase:
                case Phase.SNAPSHOT:
                    outcome = copy(means, rules, epoch, row, stop)
                case Phase.REPLICATE:
                    outcome = replicate(means, rules, epoch, row, ending, stop)
                case _:
                    return Finished()
            if outcome is not None:
                return outcome
