"""list-member: the live masters and workers, those that start, and dead workers that still have a source."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.master.watch import MasterWatch
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.warnings.certificates import certificate_warnings
from shardmerge.proto.warnings.clocks import clock_warning

_INSECURE = re.compile(r"^insecure: true$", re.MULTILINE)
OFFLINE, STARTING, FREE, BOUND = "offline", "starting", "free", "bound"


@dataclass(frozen=True, slots=True)
class MembersCommand:
    """``name``: of this master."""

    name: str
    store: Store
    watch: MasterWatch

    def list(self, request: pb.ListMemberRequest) -> pb.ListMemberResponse:
        """The members with their warnings, as last measured: this master's own, and those of workers if it leads."""
        answer = list_members(request, self.store.read())
        own = tuple(certificate_warnings(self.watch.certificates, time.time()))
        seen = self.watch.workers
        for worker in answer.workers:
            if worker.name in seen and worker.stage != OFFLINE:
                worker.warnings.extend(seen[worker.name].warnings)
                clock = seen[worker.name].clock
                warning = None if clock is None else clock_warning(clock)
                worker.warnings.extend([] if warning is None else [warning])
        for master in (*answer.masters, *([answer.leader] if answer.HasField("leader") else [])):
            if master.name == self.name:
                master.warnings.extend(own)
        return answer


def list_members(request: pb.ListMemberRequest, state: State) -> pb.ListMemberResponse:
    """The members that ``request`` asks for: no kind means every kind, no name every name. Pure."""
    every = not (request.leader or request.master or request.worker)
    names = frozenset(request.names)
    answer = pb.ListMemberResponse(result=True)
    if (every or request.leader) and state.leader:
        leader = state.leader.value
        answer.leader.CopyFrom(
            pb.MasterMember(
                name=leader.name,
                addr=leader.address,
                alive=leader.name in state.masters,
                insecure=leader.name in state.masters and is_insecure(state.masters[leader.name].value.settings),
            )
        )
    if every or request.master:
        answer.masters.extend(
            pb.MasterMember(name=name, addr=entry.value.address, alive=True, insecure=is_insecure(entry.value.settings))
            for name, entry in sorted(state.masters.items())
            if not names or name in names
        )
    if every or request.worker:
        answer.workers.extend(one for one in _workers(state) if not names or one.name in names)
    return answer


def _workers(state: State) -> list[pb.WorkerMember]:
    known = sorted({*state.workers, *state.starting, *state.bindings().values()})
    return [_worker(name, state) for name in known]


def _worker(name: str, state: State) -> pb.WorkerMember:
    source = state.source_of(name)
    entry = state.workers.get(name)
    stage = BOUND if source else FREE
    if entry is None:
        entry = state.starting.get(name)
        stage = STARTING
    if entry is None:
        return pb.WorkerMember(name=name, stage=OFFLINE, source=source)
    return pb.WorkerMember(
        name=name,
        addr=entry.value.address,
        stage=stage,
        source=source,
        insecure=is_insecure(entry.value.settings),
    )


def is_insecure(settings: str) -> bool:
    """Whether a daemon's settings, as in its record, allow what its protection refuses. The record has no field for it
    because masters of the previous version would refuse an unknown field. Pure."""
    return _INSECURE.search(settings) is not None
