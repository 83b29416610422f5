"""`dmctl` without a command on a terminal: an interactive prompt, as in DM's dmctl."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import click
from click.shell_completion import ShellComplete, split_arg_string
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from shardmerge.ctl.error_report import ErrorReport, print_report
from shardmerge.ctl.options import Line, with_two_dashes
from shardmerge.ctl.settings import CliValues
from shardmerge.proto import errors
from shardmerge.proto.files.durable_file import private_descriptor, private_folder
from shardmerge.proto.files.state_home import state_folder

_PROMPT = "dmctl» "
_LEAVE = frozenset({"exit", "quit"})
_SECRET = re.compile(r"\bencrypt\b|identified\s+(by|with|as)|password", re.IGNORECASE)


def repl(command: click.Group, run: Callable[[list[str]], int], values: CliValues) -> int:
    """Read lines and run each, until `exit` or Ctrl-D; the exit code. Ctrl-C drops the line, or ends what runs.

    ``values``: the options of the outer command line, which apply to every line.
    """
    session: PromptSession[str] = PromptSession(
        history=_open_history(history_path(os.environ, Path.home())),
        completer=ThreadedCompleter(_Completer(command, values)),
        complete_while_typing=False,
    )
    print("Tab completes, `help` lists the commands, `exit` leaves.")
    while True:
        try:
            words = shlex.split(session.prompt(_PROMPT))
        except KeyboardInterrupt:
            continue
        except EOFError:
            return 0
        except ValueError as error:
            print_report(ErrorReport.of(errors.ctl.USAGE(problem=str(error).lower(), command="dmctl")))
            continue
        if words and words[0] in _LEAVE:
            return 0
        if words[:1] == ["dmctl"]:
            del words[0]
        if words:
            run(words)


def history_path(environment: Mapping[str, str], home: Path) -> Path:
    """The path of the history file (XDG Base Directory Specification: state that needs no backup). Pure."""
    return state_folder(environment, home) / "dmctl_history"


def is_secret(line: str) -> bool:
    """Whether a line may hold a secret: an argument of `encrypt`, or SQL that sets a password. Pure."""
    return _SECRET.search(line) is not None


class _PrivateHistory(FileHistory):
    """A history file that only its user may read; a line with a secret is not stored."""

    def append_string(self, string: str) -> None:
        if not is_secret(string):
            super().append_string(string)


def _open_history(path: Path) -> History:
    """The history at ``path``; if the file cannot be written, one that ends with the prompt."""
    try:
        private_folder(path.parent)
        descriptor = private_descriptor(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
    except OSError:
        return InMemoryHistory()
    return _PrivateHistory(str(path))


class _Completer(Completer):
    """Offers what click would offer a shell."""

    def __init__(self, command: click.Group, values: CliValues) -> None:
        self._command = command
        self._values = values
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        words = split_arg_string(text)
        begun = words.pop() if words and not text[-1:].isspace() else ""
        written = text.split()[-1] if begun else ""
        shell = ShellComplete(self._command, {"obj": Line(self._values)}, "dmctl", "")
        try:
            items = shell.get_completions(with_two_dashes(words), begun)
        except (click.ClickException, errors.ShardmergeError):
            return
        for item in items:
            if item.type in ("file", "dir"):
                yield from self._paths.get_completions(Document(begun), complete_event)
            else:
                yield Completion(shlex.quote(str(item.value)), -len(written), display=str(item.value))
