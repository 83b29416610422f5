"""Where a source's password comes from. Only a reference travels in Spark's plans, unless the user wrote the password
itself into an option."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from shardmerge.proto import errors


@dataclass(frozen=True, slots=True)
class PasswordText:
    """The password itself."""

    text: str = field(repr=False)

    def read(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class PasswordFile:
    """The first line of a file, which each machine has that reads."""

    path: str

    def read(self) -> str:
        """Raises ``read.OPTION``."""
        try:
            text = Path(self.path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = (error.strerror if isinstance(error, OSError) else "it is not UTF-8") or type(error).__name__
            raise errors.read.OPTION(option="password-file", reason=f"{self.path}: {reason}") from None
        return text.split("\n", 1)[0].removesuffix("\r")


@dataclass(frozen=True, slots=True)
class PasswordVariable:
    """A variable of the environment of each process that reads."""

    name: str

    def read(self) -> str:
        """Raises ``read.OPTION``."""
        found = os.environ.get(self.name)
        if found is None:
            reason = f"environment variable {self.name} is not set in the process that connects to the source"
            raise errors.read.OPTION(option="password-env", reason=reason)
        return found


Password = PasswordText | PasswordFile | PasswordVariable
