"""Searches what a cluster's processes have written, and what other users of the machine see of them, for passwords."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.support.cluster import Cluster

NOBODY = 65534
"""A user of the machine without rights."""


def forms(secret: str) -> list[bytes]:
    """Return the password as text, and in UTF-16, hex and base64."""
    plain = secret.encode()
    return [plain, secret.encode("utf-16-le"), plain.hex().encode(), base64.b64encode(plain)[:-4]]


def files_of(cluster: Cluster) -> Iterator[Path]:
    """Return the files that the cluster's processes have written; not those that the test gave dmctl, nor those of
    servers."""
    for path in cluster.directory.rglob("*"):
        if path.is_file() and path.suffix not in (".yaml", ".yml"):
            yield path
    for pid in processes_of(cluster):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            target = Path(os.readlink(link)) if link.is_symlink() else link
            if target.is_file() and cluster.directory not in target.parents and str(target).startswith("/tmp/"):
                yield target


def processes_of(cluster: Cluster) -> list[int]:
    """Return the ids of the daemons, their JVMs and Spark's Python processes."""
    return [process.pid for daemon in cluster.daemons for process in daemon.session()]


def seen_by_another_user(secrets: Sequence[str], places: Iterable[Path]) -> set[str]:
    """Return the files at ``places``, and in folders there, in which a user without rights finds a secret."""
    # Each pattern is one line; text in UTF-16 has zero bytes, which grep takes for the end of a file name only.
    patterns = b"\n".join(form for secret in secrets for form in forms(secret) if b"\0" not in form)
    command = ["grep", "-rlaF", "-D", "skip", "-f", "-", *map(str, places)]
    found = subprocess.run(
        command, input=patterns, capture_output=True, check=False, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/"
    )
    return set(found.stdout.decode().splitlines())
