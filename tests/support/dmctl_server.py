"""``python -m tests.support.dmctl_server <descriptor>``: runs dmctl in forked processes, for tests/support/dmctl.py.

A dmctl spends most of its processor time on imports, and the tests run it thousands of times. This process imports all
of it once. Each command is a process of its own, with its own arguments, environment, folder and output, that
executes the console script's function.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
import traceback
from typing import NoReturn, TypedDict

# Before gRPC is imported, as dmctl's main does it.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from shardmerge import ctl
from shardmerge.ctl.main import main
from shardmerge.proto.config.document import yaml_file
from shardmerge.proto.tls import diagnose, store

IMPORTED_WHEN_NEEDED = (yaml_file, diagnose, store)
"""Modules of other packages that a command imports while it runs."""
_REQUEST_BYTES = 1 << 20


class Request(TypedDict):
    """One command. ``arguments``: include dmctl's path. ``folder``: the working directory."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str


def serve(requests: socket.socket) -> None:
    """Serve until the other end is closed. A request is JSON and has three descriptors: of the socket for the answer,
    of stdout and of stderr."""
    # No process waits for the processes that watch a command.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        raw, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 3)
        if not raw:
            return
        answer, out, error = descriptors
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            pid = os.fork()
            if pid == 0:
                os.close(answer)
                _become(json.loads(raw), out, error)
                _run()
            _watch(pid, answer)
        for descriptor in descriptors:
            os.close(descriptor)


def _watch(pid: int, answer: int) -> NoReturn:
    """Report the command's process id, and its exit code when it has ended."""
    with socket.socket(fileno=answer) as connection:
        try:
            connection.send(str(pid).encode())
            _, status = os.waitpid(pid, 0)
            connection.send(str(os.waitstatus_to_exitcode(status)).encode())
        finally:
            os._exit(0)


def _become(request: Request, out: int, error: int) -> None:
    """Set up this process like one that a shell has started."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, place in ((nothing, 0), (out, 1), (error, 2)):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["arguments"]
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115


def _run() -> NoReturn:
    """Run dmctl and exit without the interpreter's cleanup: that frees every module, which takes five times as long as
    a command."""
    code = 1
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 — reported as an interpreter reports it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as _requests:
        for _module in pkgutil.walk_packages(ctl.__path__, "shardmerge.ctl."):
            importlib.import_module(_module.name)
        # The garbage collector writes to every object that it tracks: a forked process would copy those memory pages.
        gc.freeze()
        serve(_requests)
