"""The configured TLS files of a process. It has few imports, because dmctl starts with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_PARTS = ("ssl-ca", "ssl-cert", "ssl-key")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths. ``cert`` and ``key`` "": this side shows no certificate. ``prefix``: of the configuration keys."""

    ca: str
    cert: str = ""
    key: str = ""
    prefix: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """The configured paths."""
        return tuple(path for path in (self.ca, self.cert, self.key) if path)

    def name(self, part: str) -> str:
        """The configuration key of ``part``: ca, cert or key."""
        return f"{self.prefix}ssl-{part}"


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS of a process. ``allowed_names``: common names of the certificates whose calls its server accepts; none: every
    certificate of the authorities in ``files.ca``."""

    files: TlsFiles
    allowed_names: tuple[str, ...] = ()


def incomplete(given: Mapping[str, str]) -> tuple[str, str] | None:
    """The error if only some of ssl-ca, ssl-cert and ssl-key are set: one that is set, and the message."""
    there = [key for key in _PARTS if given.get(key)]
    missing = [key for key in _PARTS if not given.get(key)]
    if not there or not missing:
        return None
    return there[0], f"ssl-ca, ssl-cert and ssl-key go together: {' and '.join(missing)} {_is_or_are(missing)} missing"


def _is_or_are(words: list[str]) -> str:
    return "is" if len(words) == 1 else "are"
