"""`dmctl operate-source`: creates, changes, shows and removes the servers that rows come from."""

from __future__ import annotations

from collections.abc import Sequence

import click

from shardmerge.ctl import render
from shardmerge.ctl.files import config_file, is_file_argument, source_file_with_password
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.proto import master_pb2 as pb


@click.command("operate-source")
@click.argument("op", metavar="create|update|stop|show", required=False)
@click.argument("items", metavar="[FILE|ID]…", nargs=-1)
@click.option("-w", "--worker", default="", metavar="NAME", help="create: bind the source to this worker")
@click.option("-p", "--print-sample-config", is_flag=True, help="print a source file to start from")
@click.option("--dry-run", is_flag=True, help="update: only show what would change")
@click.option(
    "--ask-password",
    is_flag=True,
    help="update: ask for the password of each server (without echo, or one line of standard input each), and send it "
    "instead of the one in the file, which stays as it is",
)
@shared()
def operate_source(
    op: str | None,
    items: tuple[str, ...],
    worker: str,
    *,
    print_sample_config: bool,
    dry_run: bool,
    ask_password: bool,
) -> int:
    """Create, update, stop or show sources.

    create and update take one file per source; stop takes files or source ids; show takes source ids, files or nothing.
    Another host or port needs the password itself, not a reference to it: --ask-password, or plain text in the file.

    \b
    Example:
        dmctl operate-source update mysql-01.yaml
    """
    if print_sample_config:
        from shardmerge.proto.config.docs.samples import (
            sample_of,  # importing pydantic takes 0.2 s: only when needed
        )
        from shardmerge.proto.config.source import SourceModel

        print(sample_of(SourceModel), end="")
        return 0
    session = Session.current()
    request = _request(op, items, worker, session.settings.sources, dry_run=dry_run, ask_password=ask_password)
    command = f"operate-source {op}"
    answer = session.call(command, lambda master: master.OperateSource, request)
    return session.show(command, answer, lambda: render.tables.operate_source(answer))


def _request(
    op: str | None, items: tuple[str, ...], worker: str, ids: Sequence[str], *, dry_run: bool, ask_password: bool
) -> pb.OperateSourceRequest:
    """``ids``: of sources, from the option of all commands. Raises ``click.UsageError``."""
    if dry_run and op != "update":
        raise click.UsageError("--dry-run goes with operate-source update only")
    if ask_password and op != "update":
        raise click.UsageError("--ask-password goes with operate-source update only")
    if worker and op != "create":
        raise click.UsageError("--worker goes with operate-source create only")
    match op:
        case "create":
            if not items:
                raise click.UsageError("operate-source create needs at least one source file")
            return pb.OperateSourceRequest(
                op=pb.OperateSourceRequest.OP_CREATE, files=[config_file(item) for item in items], worker=worker
            )
        case "stop":
            if not items and not ids:
                raise click.UsageError("operate-source stop needs at least one source file or source id")
            files = [item for item in items if is_file_argument(item)]
            names = [item for item in items if item not in files]
            return pb.OperateSourceRequest(
                op=pb.OperateSourceRequest.OP_STOP,
                files=[config_file(item) for item in files],
                source_ids=[*names, *ids],
            )
        case "show":
            files = [item for item in items if is_file_argument(item)]
            return pb.OperateSourceRequest(
                op=pb.OperateSourceRequest.OP_SHOW,
                files=[config_file(item) for item in files],
                source_ids=[*(item for item in items if item not in files), *ids],
            )
        case "update":
            if not items:
                raise click.UsageError("operate-source update needs at least one source file")
            return pb.OperateSourceRequest(
                op=pb.OperateSourceRequest.OP_UPDATE,
                files=[source_file_with_password(item) if ask_password else config_file(item) for item in items],
                dry_run=dry_run,
            )
        case None:
            raise click.UsageError("operate-source needs one of create, update, stop, show")
        case _:
            raise click.UsageError(f"operate-source knows create, update, stop, show; not {op!r}")
