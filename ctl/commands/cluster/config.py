"""`dmctl config task|source|master|worker|task-template`, and DM's older `get-config`: shows what is stored."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import click

from shardmerge.ctl import as_json
from shardmerge.ctl.commands.cluster.config_directory import export_configs, import_configs
from shardmerge.ctl.commands.source.operate_source import operate_source
from shardmerge.ctl.commands.task.update_task import update_task
from shardmerge.ctl.files import task_name
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.ctl.settings import OutputFormat
from shardmerge.ctl.shell.name_or_command import NameOrCommand
from shardmerge.proto import errors
from shardmerge.proto import master_pb2 as pb

_Kind = pb.GetConfigRequest

_TO_FILE = click.option(
    "-p", "--path", "path", default="", metavar="FILE", help="write it to this file (mode 0600), not to the terminal"
)


def _show(kind: pb.GetConfigRequest.Kind, name: str | None, path: str) -> int:
    """Print one configuration, or without a name all names."""
    session = Session.current()
    request = pb.GetConfigRequest(kind=kind, names=[name] if name else [], names_only=not name)
    answer = session.call("config", lambda master: master.GetConfig, request)
    if name:
        return _put(session, answer.configs[0].cfg, path)
    names = [one.name for one in answer.configs]
    if session.is_json:
        print(as_json.to_text({"result": True, "msg": "", "names": [*names]}))
    else:
        print("\n".join(names))
    return 0


def _put(session: Session, text: str, path: str) -> int:
    """Print or write a configuration: YAML, in a pipe too; with `--output json` in DM's field."""
    if path:
        from shardmerge.ctl.config_files.export import write_private

        try:
            write_private(Path(path), text)
        except OSError as error:
            raise errors.ctl.WRITE_FAILED(path=path, reason=(error.strerror or str(error)).lower()) from error
        print(f"written to {path}")
    elif session.settings.output is OutputFormat.JSON:
        print(as_json.to_text({"result": True, "msg": "", "cfg": text}))
    else:
        print(text, end="" if text.endswith("\n") else "\n")
    return 0


@click.group("config")
def config() -> None:
    """Show the stored files of tasks and sources, and the settings of masters and workers; export and import them."""


@config.group(
    "task", cls=NameOrCommand, invoke_without_command=True, short_help="a task's file", subcommand_metavar="[TASK]"
)
@shared(by_source=False)
@click.pass_context
def task(context: click.Context) -> int:
    """Print a task's file as it was sent last; without a name, list the tasks.

    Passwords are shown as ******, unless they only name an environment variable: with the passwords filled in it is a
    valid file again.

    \b
    Example:
        dmctl config task merge -p merge.yaml
    """
    return _show(_Kind.KIND_TASK, None, "") if context.invoked_subcommand is None else 0


@config.group(
    "source",
    cls=NameOrCommand,
    invoke_without_command=True,
    short_help="a source's file",
    subcommand_metavar="[SOURCE]",
)
@shared(by_source=False)
@click.pass_context
def source(context: click.Context) -> int:
    """Print a source's file as it was sent, passwords as ******; without a name, list the sources.

    \b
    Example:
        dmctl config source mysql-01
    """
    return _show(_Kind.KIND_SOURCE, None, "") if context.invoked_subcommand is None else 0


@config.command("master", short_help="a master's settings")
@click.argument("name", metavar="[MASTER]", required=False)
@_TO_FILE
@shared(by_source=False)
def master(name: str | None, path: str) -> int:
    """Print the settings of a running master, its file, flags and defaults together; without a name, list the masters.

    \b
    Example:
        dmctl config master master-1
    """
    return _show(_Kind.KIND_MASTER, name, path)


@config.command("worker", short_help="a worker's settings")
@click.argument("name", metavar="[WORKER]", required=False)
@_TO_FILE
@shared(by_source=False)
def worker(name: str | None, path: str) -> int:
    """Print the settings of a running worker, its file, flags and defaults together; without a name, list the workers.

    Spark settings whose names indicate secrets are shown as ******.

    \b
    Example:
        dmctl config worker worker-1
    """
    return _show(_Kind.KIND_WORKER, name, path)


@config.command("task-template", short_help="a task file to start from")
@click.argument("name", metavar="[TASK]", required=False)
@_TO_FILE
@shared(by_source=False)
def task_template(name: str | None, path: str) -> int:
    """Print a commented task file to start from, or the file of an existing task.

    \b
    Example:
        dmctl config task-template -p task.yaml
    """
    if name:
        return _show(_Kind.KIND_TASK, name, path)
    from importlib.resources import files

    return _put(
        Session.current(), files("shardmerge.ctl").joinpath("task-sample.yaml").read_text(encoding="utf-8"), path
    )


@click.command("task")
@click.argument("name", metavar="TASK|FILE")
@_TO_FILE
@shared(by_source=False)
def _task_named(name: str, path: str) -> int:
    """Print a task's file as it was sent last.

    \b
    Example:
        dmctl config task merge
    """
    return _show(_Kind.KIND_TASK, task_name(name), path)


@click.command("source")
@click.argument("name", metavar="SOURCE")
@_TO_FILE
@shared(by_source=False)
def _source_named(name: str, path: str) -> int:
    """Print a source's file as it was sent.

    \b
    Example:
        dmctl config source mysql-01
    """
    return _show(_Kind.KIND_SOURCE, name, path)


cast("NameOrCommand", task).named = _task_named
cast("NameOrCommand", source).named = _source_named


@task.command("update", hidden=True)
@click.argument("file", metavar="FILE")
@shared(by_source=False)
@click.pass_context
def task_update(context: click.Context, file: str) -> int:
    """Replace a running task's file: `update-task`.

    \b
    Example:
        dmctl config task update merge.yaml
    """
    return int(context.invoke(update_task, file=file, dry_run=False))


@source.command("update", hidden=True)
@click.argument("items", metavar="FILE…", nargs=-1, required=True)
@shared(by_source=False)
@click.pass_context
def source_update(context: click.Context, items: tuple[str, ...]) -> int:
    """Replace a source's file: `operate-source update`.

    \b
    Example:
        dmctl config source update mysql-01.yaml
    """
    return int(context.invoke(operate_source, op="update", items=items))


@click.command("get-config")
@click.argument("kind", type=click.Choice(["task", "master", "worker", "source"]))
@click.argument("name")
@click.option("-f", "--file", "path", default="", metavar="FILE", help="write it to this file (mode 0600)")
@shared(by_source=False)
def get_config(kind: str, name: str, path: str) -> int:
    """DM's older spelling of `config`.

    \b
    Example:
        dmctl get-config task merge --file merge.yaml
    """
    kinds = {
        "task": _Kind.KIND_TASK,
        "source": _Kind.KIND_SOURCE,
        "master": _Kind.KIND_MASTER,
        "worker": _Kind.KIND_WORKER,
    }
    return _show(kinds[kind], name, path)


get_task_config = get_config
"""DM's oldest spelling."""

config.add_command(export_configs)
config.add_command(import_configs)
