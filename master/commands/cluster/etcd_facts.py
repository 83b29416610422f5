"""Facts about etcd for support-bundle: sizes of the records by prefix, and what etcd reports of itself. No values."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

import grpc

from shardmerge.proto import diagnostics_pb2 as pb
from shardmerge.proto import errors, etcd_keys
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Etcd, Record
from shardmerge.proto.etcd.api import rpc
from shardmerge.proto.etcd.connection import Connection
from shardmerge.proto.rpc.coded_errors import error_to_proto

_SECONDS = 3.0
_ALARMS = {1: "NOSPACE", 2: "CORRUPT"}
_HISTORY = (etcd_keys.HISTORY_ENTRIES, etcd_keys.HISTORY_SAMPLES)


def etcd_facts(etcd: Etcd) -> pb.EtcdDiagnostics:
    """What can be read; the errors of the rest are in the answer."""
    facts = pb.EtcdDiagnostics(endpoints=map(_endpoint, etcd.connections))
    if all(endpoint.HasField("error") for endpoint in facts.endpoints):
        return facts
    try:
        snapshot = etcd.get_prefix(etcd_keys.PREFIX)
        facts.revision = snapshot.revision
        facts.folders.extend(folders(snapshot.records))
        # The history may be the largest part of etcd: its values are not read.
        facts.folders.extend(folder_of_keys(one, etcd.keys(one)) for one in _HISTORY)
    except ShardmergeError as error:
        facts.errors.append(error_to_proto(error))
    try:
        facts.members.extend(_members(etcd))
    except ShardmergeError as error:
        facts.errors.append(error_to_proto(error))
    return facts


def folders(records: Iterable[Record]) -> Iterator[pb.EtcdFolder]:
    """Number and size of the records of each folder, by its name. Pure."""
    found: dict[str, pb.EtcdFolder] = {}
    for record in records:
        name, slash, _ = record.key.removeprefix(etcd_keys.PREFIX).partition("/")
        prefix = f"{etcd_keys.PREFIX}{name}{slash}"
        folder = found.setdefault(prefix, pb.EtcdFolder(prefix=prefix))
        folder.records += 1
        folder.key_bytes += len(record.key.encode())
        folder.value_bytes += len(record.value)
        folder.largest_bytes = max(folder.largest_bytes, len(record.value))
    yield from (found[prefix] for prefix in sorted(found))


def folder_of_keys(prefix: str, keys: Collection[str]) -> pb.EtcdFolder:
    """Number and size of the keys of a folder; the sizes of its values stay 0, which means that they are not known.
    Pure."""
    return pb.EtcdFolder(prefix=prefix, records=len(keys), key_bytes=sum(len(key.encode()) for key in keys))


def _endpoint(connection: Connection) -> pb.EtcdEndpoint:
    """What an endpoint reports of itself; of one that does not answer the error."""
    began = time.monotonic()
    try:
        found = connection.maintenance.Status(rpc.StatusRequest(), timeout=_SECONDS)
    except (grpc.RpcError, ValueError) as error:  # ValueError: the channel was closed
        reason = error.details() if isinstance(error, grpc.Call) else str(error)
        failure = errors.master.ETCD_UNAVAILABLE(endpoints=connection.endpoint, reason=reason)
        return pb.EtcdEndpoint(endpoint=connection.endpoint, error=error_to_proto(failure))
    return pb.EtcdEndpoint(
        endpoint=connection.endpoint,
        version=found.version,
        db_bytes=found.dbSize,
        member=_id(found.header.member_id),
        leader=_id(found.leader) if found.leader else "",
        raft_index=found.raftIndex,
        raft_term=found.raftTerm,
        seconds=time.monotonic() - began,
    )


def _members(etcd: Etcd) -> Iterator[pb.EtcdMember]:
    """The members of etcd's cluster, with the alarms that are raised. Raises ETCD_UNAVAILABLE, ETCD_REFUSED."""
    listed = etcd.ask(
        lambda connection, left: connection.cluster.MemberList(rpc.MemberListRequest(), timeout=left), _SECONDS
    )
    raised = etcd.ask(
        lambda connection, left: connection.maintenance.Alarm(
            rpc.AlarmRequest(action=rpc.AlarmRequest.GET), timeout=left
        ),
        _SECONDS,
    )
    alarms: defaultdict[int, list[str]] = defaultdict(list)
    for one in raised.alarms:
        alarms[one.memberID].append(_ALARMS.get(one.alarm, f"alarm {one.alarm}"))
    for one in listed.members:
        yield pb.EtcdMember(
            id=_id(one.ID), name=one.name, peer_urls=one.peerURLs, client_urls=one.clientURLs, alarms=alarms[one.ID]
        )


def _id(number: int) -> str:
    return f"{number:x}"
