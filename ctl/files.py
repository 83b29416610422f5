"""Input of commands: task files and source files, names that are no files, and passwords."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from shardmerge.proto import errors

if TYPE_CHECKING:
    from shardmerge.proto import master_pb2 as pb

_MAX_BYTES = 4 * 1024 * 1024  # what a gRPC message holds, too
_YAML_SUFFIXES = (".yaml", ".yml")


def read_text(path: str) -> str:
    """The file's text. Raises errors.ctl.FILE_NOT_FOUND or FILE_UNREADABLE."""
    try:
        size = Path(path).stat().st_size
        if size > _MAX_BYTES:
            reason = f"has {size} bytes, more than any file of dmctl may have ({_MAX_BYTES})"
            raise errors.ctl.FILE_UNREADABLE(path=path, reason=reason)
        return Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise errors.ctl.FILE_NOT_FOUND(path=path, directory=Path.cwd()) from error
    except UnicodeDecodeError as error:
        raise errors.ctl.FILE_UNREADABLE(path=path, reason=f"not UTF-8 text at byte {error.start}") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise errors.ctl.FILE_UNREADABLE(path=path, reason=reason) from error


def config_file(path: str) -> pb.ConfigFile:
    """The file, unparsed: the master parses it, so that every client gets the same answer."""
    from shardmerge.proto import master_pb2 as pb  # not for settings, which read their file too

    return pb.ConfigFile(name=path, content=read_text(path))


def source_file_with_password(path: str) -> pb.ConfigFile:
    """A source file with a password that is asked for. The file itself stays as it is."""
    import click

    from shardmerge.proto.config.document.masking import with_password  # importing ruamel takes 0.1 s
    from shardmerge.proto.config.document.yaml_file import read

    file = config_file(path)
    read(file.content, path)  # raises what is wrong with the file
    password = read_password(f"Password for the server in {path}", confirm=False)
    if not password or not password.isprintable():
        raise click.UsageError("a password is one line of characters that can be printed")
    file.content = with_password(file.content, password)
    return file


def read_password(prompt: str, *, confirm: bool) -> str:
    """A password: asked for without echo, or one line of standard input."""
    import click

    if sys.stdin.isatty():
        return click.prompt(prompt, hide_input=True, confirmation_prompt=confirm, err=True)
    return sys.stdin.readline().removesuffix("\n").removesuffix("\r")


def is_file_argument(argument: str) -> bool:
    """Whether an argument that may be a name or a file is a file.

    An existing file does; so does anything that is written like one, so that a mistyped path is
    reported as such and not as an unknown name.
    """
    return Path(argument).is_file() or looks_like_path(argument)


def looks_like_path(argument: str) -> bool:
    return os.sep in argument or argument.lower().endswith(_YAML_SUFFIXES)


def task_name(argument: str) -> str:
    """The task named by ``argument``: a task's name, or a task file's ``name``.

    If a file without a YAML suffix is no task file, the argument is the name of a task, as in DM. Raises
    errors.ctl.FILE_NOT_FOUND, FILE_UNREADABLE, NO_TASK_NAME.
    """
    if not is_file_argument(argument):
        return argument
    try:
        return _name_in(argument, read_text(argument))
    except errors.ShardmergeError:
        if looks_like_path(argument):
            raise
        return argument


def _name_in(path: str, text: str) -> str:
    from shardmerge.proto.config.document.yaml_file import compose

    # A message about a file that cannot be read never quotes the file: it holds passwords.
    document, findings = compose(text, path)
    if document is None:
        found = min(findings, key=lambda finding: (finding.line, finding.column))
        raise errors.ctl.NO_TASK_NAME(path=path, line=found.line, reason=found.message)
    if "name" not in document.root or document.root["name"] in (None, ""):
        raise errors.ctl.NO_TASK_NAME(path=path, line=1, reason="no `name` at the top level")
    name = document.root["name"]
    if not isinstance(name, str):
        raise errors.ctl.NO_TASK_NAME(path=path, line=document.line(("name",)), reason="`name` is not a word")
    return name
