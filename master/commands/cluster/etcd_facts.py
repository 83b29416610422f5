"""Facts about etcd for support-bundle: sizes of the records by prefix, and what etcd reports of itself. No values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from shardmerge.proto import diagnostics_pb2 as pb
from shardmerge.proto import etcd_keys
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Etcd, Record
from shardmerge.proto.etcd.status import EndpointFailed, EndpointStatus, EtcdMember, endpoint_states, members
from shardmerge.proto.rpc.coded_errors import error_to_proto

_SECONDS = 3.0
_HISTORY = (etcd_keys.HISTORY_ENTRIES, etcd_keys.HISTORY_SAMPLES)


def etcd_facts(etcd: Etcd) -> pb.EtcdDiagnostics:
    """What can be read; the errors of the rest are in the answer."""
    states = endpoint_states(etcd, _SECONDS)
    facts = pb.EtcdDiagnostics(endpoints=map(_endpoint, states))
    if all(isinstance(state, EndpointFailed) for state in states):
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
        facts.members.extend(map(_member, members(etcd, _SECONDS)))
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


def _endpoint(status: EndpointStatus | EndpointFailed) -> pb.EtcdEndpoint:
    match status:
        case EndpointFailed():
            return pb.EtcdEndpoint(endpoint=status.endpoint, error=error_to_proto(status.error))
        case EndpointStatus():
            return pb.EtcdEndpoint(
                endpoint=status.endpoint,
                version=status.version,
                db_bytes=status.db_bytes,
                member=status.member,
                leader=status.leader,
                raft_index=status.raft_index,
                raft_term=status.raft_term,
                seconds=status.seconds,
            )


def _member(member: EtcdMember) -> pb.EtcdMember:
    return pb.EtcdMember(
        id=member.id,
        name=member.name,
        peer_urls=member.peer_urls,
        client_urls=member.client_urls,
        alarms=member.alarms,
    )
