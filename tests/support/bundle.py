"""Reads the file of `dmctl support-bundle`, and searches it for secrets."""

from __future__ import annotations

import base64
import gzip
import json
import stat
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


class Bundle:
    """The unpacked files by their path within the bundle's folder."""

    def __init__(self, path: Path) -> None:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        self.path = path
        self.files: dict[str, bytes] = {}
        with tarfile.open(path) as archive:
            for entry in archive:
                folder, _, name = entry.name.partition("/")
                assert folder.startswith("shardmerge-support-") and entry.isreg() and entry.mode == 0o600, entry
                content = archive.extractfile(entry)
                assert content is not None and name not in self.files
                self.files[name] = content.read()

    def text(self, name: str) -> str:
        return self.files[name].decode()

    def json(self, name: str) -> Any:
        return json.loads(self.files[name])

    @property
    def readme(self) -> str:
        return self.text("README.md")

    def found(self, secrets: Iterable[str]) -> list[tuple[str, str]]:
        """Return (secret, where) for each form of a secret that is in any byte of the bundle: names, files and the
        archive itself."""
        places = {**self.files, "(archive)": gzip.decompress(self.path.read_bytes())}
        return [
            (secret, name)
            for secret in secrets
            for form in _forms(secret)
            for name, content in places.items()
            if form in content or form in name.encode()
        ]


def _forms(secret: str) -> Iterator[bytes]:
    """The text, its hexadecimal form, and its base64 forms at each of the three offsets in a longer text."""
    raw = secret.encode()
    yield raw
    yield raw.hex().encode()
    yield json.dumps(secret).strip('"').encode()
    for offset in range(3):
        # Only the characters that depend on nothing before or after the secret.
        usable = len(raw) - (-offset % 3)
        middle = raw[-offset % 3 :][: usable - usable % 3]
        yield from (base64.b64encode(middle), base64.urlsafe_b64encode(middle))
