"""`dmctl start-relay`, `stop-relay`, `pause-relay`, `resume-relay`, `purge-relay`: a source's relay log."""

from __future__ import annotations

import click

from shardmerge.ctl import render
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.proto import master_pb2 as pb

_Op = pb.OperateRelayRequest


@click.command("start-relay")
@click.argument("workers", metavar="[WORKER]…", nargs=-1)
@shared()
def start_relay(workers: tuple[str, ...]) -> int:
    """Accepted for compatibility with DM: the relay log of a source is always on. A paused one continues, as with
    resume-relay.

    Names of workers are not needed: the command is for the source's worker.

    \b
    Example:
        dmctl start-relay -s mysql-01
    """
    del workers
    return _operate("start-relay", _Op.OP_START)


@click.command("stop-relay")
@click.argument("workers", metavar="[WORKER]…", nargs=-1)
@shared()
def stop_relay(workers: tuple[str, ...]) -> int:
    """Refused: tasks read the binlog only from the relay log. The answer names what to use instead.

    \b
    Example:
        dmctl stop-relay -s mysql-01
    """
    del workers
    return _operate("stop-relay", _Op.OP_STOP)


@click.command("pause-relay")
@shared()
def pause_relay() -> int:
    """Stop fetching from the sources of -s until resume-relay. Tasks apply what the relay log holds, then wait.
    The answer has how long the source keeps what is not fetched.

    \b
    Example:
        dmctl pause-relay -s mysql-01
    """
    return _operate("pause-relay", _Op.OP_PAUSE)


@click.command("resume-relay")
@shared()
def resume_relay() -> int:
    """Continue fetching from the sources of -s after pause-relay.

    \b
    Example:
        dmctl resume-relay -s mysql-01,mysql-02
    """
    return _operate("resume-relay", _Op.OP_RESUME)


def _operate(command: str, op: pb.OperateRelayRequest.Op) -> int:
    session = Session.current()
    sources = session.settings.sources
    if not sources:
        raise click.UsageError(f"{command} needs at least one source: -s")
    request = pb.OperateRelayRequest(op=op, sources=sources)
    answer = session.call(command, lambda master: master.OperateRelay, request)
    return session.show(command, answer, lambda: render.tables.operate_relay(answer))


@click.command("purge-relay")
@click.option("-f", "--filename", default="", metavar="BINLOG-FILE", help="remove everything before this binlog file")
@click.option("--sub-dir", default="", metavar="ID", help="only if this is the relay log: relaySubDir in query-status")
@shared()
def purge_relay(filename: str, sub_dir: str) -> int:
    """Remove the relay log of the sources of -s up to a binlog file, such as mysql-bin.000006.

    Files that a task still needs are kept, and the answer shows why.

    \b
    Example:
        dmctl purge-relay -s mysql-01 --filename mysql-bin.000006
    """
    session = Session.current()
    if not session.settings.sources:
        raise click.UsageError("purge-relay needs at least one source: -s")
    if not filename:
        raise click.UsageError("purge-relay needs a binlog file: --filename")
    request = pb.PurgeRelayRequest(sources=session.settings.sources, filename=filename, sub_dir=sub_dir)
    answer = session.call("purge-relay", lambda master: master.PurgeRelay, request)
    return session.show("purge-relay", answer, lambda: render.tables.purge_relay(answer))
