"""`dmctl config export|import`: all sources and tasks to a directory, and into a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from shardmerge.ctl import as_json
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.errors import ShardmergeError

Command = TypeVar("Command", bound=Callable[..., Any])

_DEFAULT = "configs"


def _place(command: Command) -> Command:
    """Add the option for the directory; -d is DM's older spelling."""
    for option in (
        click.option("-d", "--dir", "directory", default="", hidden=True),
        click.option("-p", "--path", default="", metavar="DIRECTORY", help="[./configs]"),
    ):
        command = option(command)
    return command


@click.command("export", short_help="write all sources and tasks to a directory")
@_place
@shared(by_source=False)
def export_configs(path: str, directory: str) -> int:
    """Write the files of all sources and tasks to a new directory, with their states (where each task runs, or is
    paused). The files contain passwords in plain text: only you may read the directory, and the master answers only
    over its Unix socket (master-socket) or TLS.

    \b
    Example:
        dmctl --master-addr unix:/run/shardmerge/master-1.sock config export -p ./configs
    """
    from shardmerge.ctl.config_files import export
    from shardmerge.proto.config.document.masking import holds_secrets

    session = Session.current()
    path = path or directory or _DEFAULT
    sources = _all(session, pb.GetConfigRequest.KIND_SOURCE)
    tasks = _all(session, pb.GetConfigRequest.KIND_TASK)
    export.write(path, sources, tasks)
    lines = [f"{len(sources)} sources and {len(tasks)} tasks written to {path}"]
    plain = sum(holds_secrets(one.cfg) for one in (*sources, *tasks))
    if plain:
        lines.append(f"{plain} of the files hold passwords in plain text: only you may read them (mode 0600)")
    lines += [
        f"task {task.name} on source {one.source}: {one.binlog_ops} overrides of `binlog` are not in an export"
        for task in tasks
        for one in task.subtasks
        if one.binlog_ops
    ]
    _print_result(session, lines)
    return 0


def _all(session: Session, kind: pb.GetConfigRequest.Kind) -> list[pb.StoredConfig]:
    request = pb.GetConfigRequest(kind=kind, with_secrets=True)
    return list(session.call("config export", lambda master: master.GetConfig, request).configs)


@click.command("import", short_help="create the sources and start the tasks of a directory")
@_place
@shared(by_source=False)
def import_configs(path: str, directory: str) -> int:
    """Create the sources and start the tasks of a directory that `config export` (or DM's) has written.

    All files are read and every pre-check is run before the first task is started; a refusal removes what was created.
    What exists already with the same file is skipped.

    \b
    Example:
        dmctl config import -p ./configs
    """
    from shardmerge.ctl.config_files import export, importing

    session = Session.current()
    progress = importing.ImportProgress()
    try:
        importing.run(session, export.read(path or directory or _DEFAULT), progress)
    except (ShardmergeError, KeyboardInterrupt) as error:
        _print_result(session, progress.done, str(error) or "interrupted")
        raise
    _print_result(session, progress.done)
    return 0


def _print_result(session: Session, lines: list[str], problem: str = "") -> None:
    """Print what was done; ``problem``: why the rest was not."""
    if session.is_json:
        print(as_json.to_text({"result": not problem, "msg": problem, "done": [*lines]}))
    elif lines:
        print("\n".join(lines))
