"""operate-leader, offline-member: which master leads, and which dead members are forgotten."""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.master.leader.election import Election
from shardmerge.master.placement import Unbind
from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.proto import errors
from shardmerge.proto import master_pb2 as pb

_Op = pb.OperateLeaderRequest


@dataclass(frozen=True, slots=True)
class LeaderCommand:
    """``name``: of this master."""

    name: str
    store: Store
    election: Election

    def operate(self, request: pb.OperateLeaderRequest) -> pb.OperateLeaderResponse:
        """Step down, which only a leader can, or run for leader again.

        Raises NOT_LEADER, NO_LEADER, EVICT_ALONE, BAD_REQUEST.
        """
        match request.op:
            case _Op.OP_EVICT:
                with self.store.deciding() as state:
                    refuse_alone(self.name, state)
                self.election.step_down()
                msg = f"master {self.name} leads no more, until operate-leader cancel-evict or its next start"
            case _Op.OP_CANCEL_EVICT:
                self.election.run_again()
                msg = f"master {self.name} may lead"
            case _:
                raise errors.master.BAD_REQUEST(reason="operate-leader: evict or cancel-evict?")
        return pb.OperateLeaderResponse(result=True, msg=msg)


def refuse_alone(name: str, state: State) -> None:
    """Check that another master could lead. Pure. Raises EVICT_ALONE."""
    if not set(state.masters) - {name}:
        raise errors.master.EVICT_ALONE(master=name)


def offline(request: pb.OfflineMemberRequest, store: Store) -> pb.OfflineMemberResponse:
    """Forget a member that is dead. Raises what :func:`to_unbind` raises."""
    with store.deciding() as state:
        steps = to_unbind(request, state)
        for step in steps:
            store.place(step, state)
    sources = ", ".join(step.source for step in steps)
    return pb.OfflineMemberResponse(
        result=True,
        msg=f"{request.type} {request.name} is forgotten" + (f"; it held source {sources}" if sources else ""),
    )


def to_unbind(request: pb.OfflineMemberRequest, state: State) -> tuple[Unbind, ...]:
    """The bindings that are left of a dead member; its other records are deleted with its lease. Pure.

    Raises MEMBER_ALIVE, MASTER_UNKNOWN, WORKER_UNKNOWN, BAD_REQUEST.
    """
    name = request.name
    match request.type:
        case "master":
            if name in state.masters:
                raise errors.master.MEMBER_ALIVE(kind="master", name=name)
            raise errors.master.MASTER_UNKNOWN(master=name)
        case "worker":
            if name in state.workers:
                raise errors.master.MEMBER_ALIVE(kind="worker", name=name)
            held = tuple(Unbind(source, name) for source, holder in sorted(state.bindings().items()) if holder == name)
            if not held:
                raise errors.master.WORKER_UNKNOWN(worker=name)
            return held
        case _:
            raise errors.master.BAD_REQUEST(reason="offline-member: a master or a worker?")
