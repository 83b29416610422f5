"""What etcd reports of itself: the state of each endpoint, its members and their alarms."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass

import grpc

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd.api import rpc
from shardmerge.proto.etcd.client import Etcd
from shardmerge.proto.etcd.connection import Connection

_ALARMS = {1: "NOSPACE", 2: "CORRUPT"}


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """``member`` and ``leader``: ids, hexadecimal; ``leader`` "": it knows none. ``seconds``: how long the answer
    took."""

    endpoint: str
    version: str
    db_bytes: int
    member: str
    leader: str
    raft_index: int
    raft_term: int
    seconds: float


@dataclass(frozen=True, slots=True)
class EndpointFailed:
    """The endpoint did not answer."""

    endpoint: str
    error: ShardmergeError


@dataclass(frozen=True, slots=True)
class EtcdMember:
    """``alarms``: those that are raised, such as NOSPACE."""

    id: str
    name: str
    peer_urls: tuple[str, ...]
    client_urls: tuple[str, ...]
    alarms: tuple[str, ...]


def endpoint_states(etcd: Etcd, seconds: float) -> tuple[EndpointStatus | EndpointFailed, ...]:
    """Of each endpoint, one after the other, ``seconds`` for each."""
    return tuple(_status(connection, seconds) for connection in etcd.connections)


def members(etcd: Etcd, seconds: float) -> tuple[EtcdMember, ...]:
    """The members of etcd's cluster. Raises ETCD_UNAVAILABLE, ETCD_REFUSED."""
    listed = etcd.ask(
        lambda connection, left: connection.cluster.MemberList(rpc.MemberListRequest(), timeout=left), seconds
    )
    raised = etcd.ask(
        lambda connection, left: connection.maintenance.Alarm(
            rpc.AlarmRequest(action=rpc.AlarmRequest.GET), timeout=left
        ),
        seconds,
    )
    alarms: defaultdict[int, list[str]] = defaultdict(list)
    for one in raised.alarms:
        alarms[one.memberID].append(_ALARMS.get(one.alarm, f"alarm {one.alarm}"))
    return tuple(
        EtcdMember(_id(one.ID), one.name, tuple(one.peerURLs), tuple(one.clientURLs), tuple(alarms[one.ID]))
        for one in listed.members
    )


def _status(connection: Connection, seconds: float) -> EndpointStatus | EndpointFailed:
    began = time.monotonic()
    try:
        found = connection.maintenance.Status(rpc.StatusRequest(), timeout=seconds)
    except (grpc.RpcError, ValueError) as error:  # ValueError: the channel was closed
        reason = error.details() if isinstance(error, grpc.Call) else str(error)
        failure = errors.master.ETCD_UNAVAILABLE(endpoints=connection.endpoint, reason=reason)
        return EndpointFailed(connection.endpoint, failure)
    return EndpointStatus(
        connection.endpoint,
        found.version,
        found.dbSize,
        _id(found.header.member_id),
        _id(found.leader) if found.leader else "",
        found.raftIndex,
        found.raftTerm,
        time.monotonic() - began,
    )


def _id(number: int) -> str:
    return f"{number:x}"
