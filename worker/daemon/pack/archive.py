"""Writes an archive whose content depends only on the files: sorted, without times, owners and names of users.

Compiled copies of Python modules are in it: without them each executor would compile thousands of modules at its start.
They are marked as unchecked, because the modules have no times of change there.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import marshal
import os
import sys
import tarfile
import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import MAGIC_NUMBER, cache_from_source, source_hash
from pathlib import Path, PurePosixPath

from shardmerge.proto.files.durable_file import private_descriptor, sync_directory

_TIME = 315532800
"""1980-01-01: some programs refuse earlier times."""
_LEVEL = 5
_UNCHECKED = (1).to_bytes(4, "little")
_HEADER_BYTES = 16


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """A file of the archive. ``name``: its path there. ``content``: bytes, or the file that has them."""

    name: str
    content: Path | bytes
    is_executable: bool = False

    def read(self) -> bytes:
        """Raises OSError."""
        return self.content if isinstance(self.content, bytes) else self.content.read_bytes()


@dataclass(frozen=True, slots=True)
class ArchiveSummary:
    """``digest``: of the names and contents, in hexadecimal digits. The compiled copies do not count: two compilations
    of one module may differ. ``size``: bytes of the archive."""

    files: int
    size: int
    digest: str


def write_archive(path: Path, entries: Iterable[ArchiveEntry]) -> ArchiveSummary:
    """Write a ``.tar.gz`` that only its owner may read: users' modules may be in it. An existing file is replaced when
    the new one is complete. Raises OSError."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.unlink(missing_ok=True)
        with os.fdopen(private_descriptor(partial, os.O_WRONLY | os.O_EXCL), "wb") as file:
            with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
                files, digest = _write(packed, entries)
            file.flush()
            os.fsync(file.fileno())
        size = partial.stat().st_size
        partial.replace(path)
        sync_directory(path.parent)
    except BaseException:
        with suppress(FileNotFoundError):
            partial.unlink()
        raise
    return ArchiveSummary(files, size, digest)


def _write(packed: gzip.GzipFile, entries: Iterable[ArchiveEntry]) -> tuple[int, str]:
    digest = hashlib.sha256()
    files = 0
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for entry in sorted(entries, key=lambda entry: entry.name):
            content = entry.read()
            digest.update(f"{entry.name}\0{int(entry.is_executable)}\0{len(content)}\0".encode())
            digest.update(content)
            _add(archive, entry.name, content, 0o755 if entry.is_executable else 0o644)
            copy = _compiled(entry, content)
            if copy is not None:
                _add(archive, compiled_name(entry.name), copy, 0o644)
            files += 1
    return files, digest.hexdigest()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    header = tarfile.TarInfo(name)
    header.size, header.mode, header.mtime = len(content), mode, _TIME
    archive.addfile(header, io.BytesIO(content))


def compiled_name(name: str) -> str:
    """Where the compiled copy of a module is searched."""
    path = PurePosixPath(name)
    return str(path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc")


def _compiled(entry: ArchiveEntry, source: bytes) -> bytes | None:
    """The compiled copy of a module; None for what is none, or has errors."""
    if not entry.name.endswith(".py"):
        return None
    code = _present_code(entry.content) if isinstance(entry.content, Path) else None
    if code is None:
        try:
            with warnings.catch_warnings(action="ignore"):
                code = marshal.dumps(compile(source, entry.name, "exec", dont_inherit=True, optimize=0))
        except (SyntaxError, ValueError, RecursionError):
            return None
    return MAGIC_NUMBER + _UNCHECKED + source_hash(source) + code


def _present_code(path: Path) -> bytes | None:
    """The code that Python has compiled of the present file; None if there is none."""
    try:
        found, stat = Path(cache_from_source(str(path))).read_bytes(), path.stat()
    except (OSError, NotImplementedError):
        return None
    of_file = b"".join((number & 0xFFFFFFFF).to_bytes(4, "little") for number in (int(stat.st_mtime), stat.st_size))
    return found[_HEADER_BYTES:] if found[:_HEADER_BYTES] == MAGIC_NUMBER + bytes(4) + of_file else None
