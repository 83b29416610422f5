"""etcd3's messages and service stubs, usable with the installed protobuf.

Only the generated protocol is taken from etcd3: its client's watcher spins without a pause when etcd
is away, knows one endpoint, and its lease has no keep-alive.
"""

from __future__ import annotations

from shardmerge.proto.etcd import stubs

stubs.install()

import etcd3.etcdrpc as rpc  # noqa: E402

__all__ = ["rpc"]
