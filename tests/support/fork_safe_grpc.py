"""Loads gRPC so that a child of this process lives that begins before its exec, though tests have used gRPC.

A worker starts its JVM before it imports gRPC. Here gRPC has threads, and its handlers of fork() abort one child in
twenty (seen with 1.85: "epoll_wait error: Bad file descriptor"). gRPC reads the variable when it is imported; the
daemons of tests must not inherit it.
"""

from __future__ import annotations

import os
import sys

_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"

assert "grpc" not in sys.modules, "it has read the variable already"
os.environ[_SUPPORT] = "0"

import grpc  # noqa: E402

__all__ = ["grpc"]

del os.environ[_SUPPORT]
