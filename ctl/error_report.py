"""The report on stderr when a command fails: always exactly two lines."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardmerge.proto.errors import ShardmergeError

if TYPE_CHECKING:
    from shardmerge.proto.common_pb2 import ErrorDetail


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """One error for the operator: its catalogue ``code`` and ``name``, what happened and what to do."""

    code: int
    name: str
    message: str
    workaround: str

    @classmethod
    def of(cls, error: ShardmergeError) -> ErrorReport:
        return cls(error.code, error.spec.name, error.message, error.workaround)

    @classmethod
    def of_detail(cls, detail: ErrorDetail, where: str = "") -> ErrorReport:
        """The report of an error in an answer; ``where`` (a source id) is put in front unless the message names it."""
        message = detail.message
        if where and where not in message:
            message = f"source {where}: {message}"
        return cls(detail.code, detail.name, message, detail.workaround)

    def lines(self) -> str:
        """The two lines with their line ends; line breaks and control characters inside become spaces."""
        todo = self.workaround or "No remedy is known for this error; look at the log of the daemon."
        return f"error: [{self.code} {self.name}] {flat(self.message)}\n       what to do: {flat(todo)}\n"


def flat(text: str) -> str:
    """``text`` on one line, without characters that could control a terminal."""
    return " ".join("".join(mark if mark.isprintable() else " " for mark in text).split())


def print_report(report: ErrorReport) -> None:
    """Print the two lines on stderr, the first word in red on a terminal."""
    text = report.lines()
    if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        text = "\x1b[1;31merror:\x1b[0m" + text.removeprefix("error:")
    sys.stderr.write(text)
    sys.stderr.flush()
