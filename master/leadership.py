"""operate-leader, offline-member: who leads, and which members are given up."""

from __future__ import annotations

from dataclasses import dataclass

from master.election import Election
from master.placement import Unbind
from master.state import State
from master.store import Store
from proto import errors
from proto import master_pb2 as pb

_Op = pb.OperateLeaderRequest


@dataclass(frozen=True, slots=True)
class Leaders:
    """``name``: of this master."""

    name: str
    store: Store
    election: Election

    def operate(self, request: pb.OperateLeaderRequest) -> pb.OperateLeaderResponse:
        """Stand back, which only a leader can, or no longer. Raises NOT_LEADER, NO_LEADER, EVICT_ALONE, BAD_REQUEST."""
        match request.op:
            case _Op.OP_EVICT:
                with self.store.deciding() as state:
                    refuse_alone(self.name, state)
                self.election.stand_back()
                msg = f"master {self.name} leads no more, until operate-leader cancel-evict or its next start"
            case _Op.OP_CANCEL_EVICT:
                self.election.stand_again()
                msg = f"master {self.name} may lead"
            case _:
                raise errors.master.BAD_REQUEST(reason="operate-leader: evict or cancel-evict?")
        return pb.OperateLeaderResponse(result=True, msg=msg)


def refuse_alone(name: str, state: State) -> None:
    """Whether somebody else could lead. Pure. Raises EVICT_ALONE."""
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
    """What is left of a dead member: bindings, for other records go with its lease. Pure.

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
