"""One run of one command: its settings, its connection and its output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

import click

from shardmerge.ctl import as_json
from shardmerge.ctl.as_json import Json
from shardmerge.ctl.error_report import ErrorReport, print_report
from shardmerge.ctl.options import Line
from shardmerge.ctl.settings import ClientSettings, OutputFormat, resolve
from shardmerge.ctl.verdict import Answer, judge

if TYPE_CHECKING:
    import grpc
    from rich.console import Console, RenderableType

    from shardmerge.ctl.client import MasterClient
    from shardmerge.proto.master_pb2_grpc import MasterStub

Request = TypeVar("Request")
Response = TypeVar("Response")

_PIPE_WIDTH = 160  # for a table in a pipe or a file, wide enough to avoid wrapping


class Session:
    """Created by a command; closed with the command's click context."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._client: MasterClient | None = None
        self._stack = ExitStack()

    @classmethod
    def current(cls) -> Session:
        """The session of the command that runs. Raises click.UsageError for a malformed shared option."""
        context = click.get_current_context()
        line = context.find_object(Line) or Line()
        try:
            session = cls(resolve(line.values, os.environ))
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        context.call_on_close(session.close)
        return session

    def close(self) -> None:
        self._stack.close()

    @property
    def client(self) -> MasterClient:
        if self._client is None:
            from shardmerge.ctl.client import MasterClient  # importing gRPC takes 0.2 s: only when needed

            self._client = self._stack.enter_context(MasterClient(self.settings))
            self._warn_of_key()
        return self._client

    def _warn_of_key(self) -> None:
        """Warn on stderr of a key that every user can read."""
        from shardmerge.proto.tls.process import key_warning

        warning = None if self.settings.tls is None else key_warning(self.settings.tls)
        if warning is not None:
            print(f"warning: {warning}\n         {warning.workaround}", file=sys.stderr)

    def call(
        self,
        command: str,
        method: Callable[[MasterStub], grpc.UnaryUnaryMultiCallable[Request, Response]],
        request: Request,
        *,
        timeout: float | None = None,
    ) -> Response:
        """The leader's answer; see :meth:`MasterClient.call`."""
        return self.client.call(command, method, request, timeout=timeout)

    @property
    def is_json(self) -> bool:
        match self.settings.output:
            case OutputFormat.JSON:
                return True
            case OutputFormat.TABLE:
                return False
            case OutputFormat.AUTO:
                return not sys.stdout.isatty()

    def console(self) -> Console:
        """The console for tables: coloured on a terminal only."""
        from rich.console import Console  # importing it takes 0.1 s: only for tables

        width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
        return Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=width)

    def show(
        self,
        command: str,
        answer: Answer,
        table: Callable[[], RenderableType],
        value: Callable[[], dict[str, Json]] | None = None,
    ) -> int:
        """Print the answer in the requested form, and on stderr what failed; the exit code."""
        if self.is_json:
            print(as_json.to_text(value() if value is not None else as_json.to_value(answer)), flush=True)
        else:
            self.console().print(table())
            sys.stdout.flush()
        return self.conclude(judge(command, answer))

    @staticmethod
    def conclude(report: ErrorReport | None) -> int:
        """0 without a report, else 1 and its two lines on stderr."""
        if report is None:
            return 0
        print_report(report)
        return 1
