"""Runs dmctl as another user of the machine: ``python -m tests.support.dmctl_as_user <uid> <arguments>...``.

The other user may not read the interpreter's files, so everything is imported before the process becomes that user.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys

import shardmerge.ctl
import shardmerge.proto

_ASKED_FOR_LATER = (
    "difflib",
    "encodings.idna",
    "encodings.utf_8_sig",
    "rich.console",
    "rich.table",
    "rich.text",
    "traceback",
    "zipfile",
)
_TOPS = (shardmerge.ctl, shardmerge.proto)


def main() -> None:
    for top in _TOPS:
        for module in pkgutil.walk_packages(top.__path__, f"{top.__name__}."):
            importlib.import_module(module.name)
    for name in _ASKED_FOR_LATER:
        importlib.import_module(name)
    user = int(sys.argv[1])
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    os.chdir("/")
    sys.argv[:2] = ["dmctl"]
    importlib.import_module("shardmerge.ctl.main").main()


if __name__ == "__main__":
    main()
