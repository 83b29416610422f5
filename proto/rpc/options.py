"""Options that both ends of every gRPC connection share: message sizes and keep-alive pings."""

from __future__ import annotations

from shardmerge.proto.rpc.coded_errors import MAX_METADATA_BYTES

MAX_MESSAGE_BYTES = (1 << 30) + (64 << 20)
"""A row of 1 GiB, the largest a server sends, is one event and so one message of the relay stream."""

COMMON_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    # A process may be stopped for 5 s, for example on a busy machine, without the loss of its connections.
    ("grpc.keepalive_timeout_ms", 8_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
