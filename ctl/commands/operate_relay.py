"""`dmctl start-relay`, `stop-relay`, `pause-relay`, `resume-relay`: whether the relay log of a source grows."""

from __future__ import annotations

import click

from ctl import as_table
from ctl.options import shared
from ctl.session import Session
from proto import master_pb2 as pb

_Op = pb.OperateRelayRequest


@click.command("start-relay", short_help="nothing to do: the relay log is always on")
@click.argument("workers", metavar="[WORKER]…", nargs=-1)
@shared()
def start_relay(workers: tuple[str, ...]) -> int:
    """Taken for DM's sake: the relay log of a source is always on. One that is paused goes on, as by resume-relay.

    Names of workers are not needed: the source's worker is meant.

    \b
    Example:
        dmctl start-relay -s mysql-01
    """
    del workers
    return _operate("start-relay", _Op.OP_START)


@click.command("stop-relay", short_help="refused, with what to use instead")
@click.argument("workers", metavar="[WORKER]…", nargs=-1)
@shared()
def stop_relay(workers: tuple[str, ...]) -> int:
    """Refused: tasks read the binlog from the relay log alone. The answer says what to use instead.

    \b
    Example:
        dmctl stop-relay -s mysql-01
    """
    del workers
    return _operate("stop-relay", _Op.OP_STOP)


@click.command("pause-relay", short_help="fetch nothing more from sources")
@shared()
def pause_relay() -> int:
    """End the fetching from the sources of -s until resume-relay. Tasks apply what is there and wait.

    \b
    Example:
        dmctl pause-relay -s mysql-01
    """
    return _operate("pause-relay", _Op.OP_PAUSE)


@click.command("resume-relay", short_help="fetch from sources again")
@shared()
def resume_relay() -> int:
    """Let the fetching from the sources of -s go on after pause-relay.

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
    return session.show(command, answer, lambda: as_table.operate_relay(answer))
