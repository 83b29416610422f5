"""Checks with which error a call of the contract is refused."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import pytest

from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.proto.rpc.client import coded_from_rpc


def refused(call: Callable[[], object], spec: ErrorSpec) -> ShardmergeError:
    """Return the error of ``call``, which must be of ``spec``."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error = coded_from_rpc(caught.value, "master")
    assert error.spec is spec, error
    return error
