# What this project uses of etcd3's generated protocol modules.
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import grpc

class ResponseHeader:
    cluster_id: int
    member_id: int
    revision: int
    raft_term: int

class KeyValue:
    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int

class RangeRequest:
    NONE: ClassVar[int]
    ASCEND: ClassVar[int]
    DESCEND: ClassVar[int]
    KEY: ClassVar[int]
    CREATE: ClassVar[int]
    def __init__(
        self,
        *,
        key: bytes = ...,
        range_end: bytes = ...,
        limit: int = ...,
        revision: int = ...,
        sort_order: int = ...,
        sort_target: int = ...,
        serializable: bool = ...,
        keys_only: bool = ...,
        count_only: bool = ...,
    ) -> None: ...

class RangeResponse:
    header: ResponseHeader
    kvs: Sequence[KeyValue]
    more: bool
    count: int

class PutRequest:
    def __init__(self, *, key: bytes = ..., value: bytes = ..., lease: int = ...) -> None: ...

class DeleteRangeRequest:
    def __init__(self, *, key: bytes = ..., range_end: bytes = ...) -> None: ...

class RequestOp:
    def __init__(
        self,
        *,
        request_range: RangeRequest | None = ...,
        request_put: PutRequest | None = ...,
        request_delete_range: DeleteRangeRequest | None = ...,
    ) -> None: ...

class Compare:
    EQUAL: ClassVar[int]
    GREATER: ClassVar[int]
    LESS: ClassVar[int]
    NOT_EQUAL: ClassVar[int]
    VERSION: ClassVar[int]
    CREATE: ClassVar[int]
    MOD: ClassVar[int]
    VALUE: ClassVar[int]
    def __init__(
        self,
        *,
        result: int = ...,
        target: int = ...,
        key: bytes = ...,
        version: int = ...,
        create_revision: int = ...,
        mod_revision: int = ...,
        value: bytes = ...,
    ) -> None: ...

class TxnRequest:
    def __init__(
        self,
        *,
        compare: Iterable[Compare] = ...,
        success: Iterable[RequestOp] = ...,
        failure: Iterable[RequestOp] = ...,
    ) -> None: ...

class TxnResponse:
    header: ResponseHeader
    succeeded: bool

class LeaseGrantRequest:
    def __init__(self, *, TTL: int = ..., ID: int = ...) -> None: ...

class LeaseGrantResponse:
    header: ResponseHeader
    ID: int
    TTL: int
    error: str

class LeaseRevokeRequest:
    def __init__(self, *, ID: int = ...) -> None: ...

class LeaseRevokeResponse:
    header: ResponseHeader

class LeaseKeepAliveRequest:
    def __init__(self, *, ID: int = ...) -> None: ...

class LeaseKeepAliveResponse:
    header: ResponseHeader
    ID: int
    TTL: int

class WatchCreateRequest:
    def __init__(self, *, key: bytes = ..., range_end: bytes = ..., start_revision: int = ...) -> None: ...

class WatchRequest:
    def __init__(self, *, create_request: WatchCreateRequest | None = ...) -> None: ...

class WatchResponse:
    header: ResponseHeader
    watch_id: int
    created: bool
    canceled: bool
    compact_revision: int
    events: Sequence[object]

class KVStub:
    def __init__(self, channel: grpc.Channel) -> None: ...
    Range: grpc.UnaryUnaryMultiCallable[RangeRequest, RangeResponse]
    Txn: grpc.UnaryUnaryMultiCallable[TxnRequest, TxnResponse]

class LeaseStub:
    def __init__(self, channel: grpc.Channel) -> None: ...
    LeaseGrant: grpc.UnaryUnaryMultiCallable[LeaseGrantRequest, LeaseGrantResponse]
    LeaseRevoke: grpc.UnaryUnaryMultiCallable[LeaseRevokeRequest, LeaseRevokeResponse]
    LeaseKeepAlive: grpc.StreamStreamMultiCallable[LeaseKeepAliveRequest, LeaseKeepAliveResponse]

class WatchCall(grpc.Call, Iterator[WatchResponse]): ...

class WatchStub:
    def __init__(self, channel: grpc.Channel) -> None: ...
    Watch: grpc.StreamStreamMultiCallable[WatchRequest, WatchResponse]

class StatusRequest: ...

class StatusResponse:
    header: ResponseHeader
    version: str
    dbSize: int
    leader: int
    raftIndex: int
    raftTerm: int

class AlarmRequest:
    GET: ClassVar[int]
    def __init__(self, *, action: int = ...) -> None: ...

class AlarmMember:
    memberID: int
    alarm: int

class AlarmResponse:
    alarms: Sequence[AlarmMember]

class Member:
    ID: int
    name: str
    peerURLs: Sequence[str]
    clientURLs: Sequence[str]

class MemberListRequest: ...

class MemberListResponse:
    members: Sequence[Member]

class MaintenanceStub:
    def __init__(self, channel: grpc.Channel) -> None: ...
    Status: grpc.UnaryUnaryMultiCallable[StatusRequest, StatusResponse]
    Alarm: grpc.UnaryUnaryMultiCallable[AlarmRequest, AlarmResponse]

class ClusterStub:
    def __init__(self, channel: grpc.Channel) -> None: ...
    MemberList: grpc.UnaryUnaryMultiCallable[MemberListRequest, MemberListResponse]
