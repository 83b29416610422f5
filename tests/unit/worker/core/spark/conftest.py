"""Lets a child of this process live that begins before its exec, though other tests have used gRPC.

A worker starts its JVM before it imports gRPC. Here gRPC has threads, and its handlers of fork() abort one child in
five (seen with 1.85: "epoll_wait error: Bad file descriptor"). gRPC reads the variable once, when it is used first; the
daemons of tests must not inherit it.
"""

from __future__ import annotations

import os

_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"

os.environ[_SUPPORT] = "0"

import grpc  # noqa: E402

grpc.insecure_channel("127.0.0.1:1").close()
del os.environ[_SUPPORT]
