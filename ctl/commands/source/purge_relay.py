"""`dmctl purge-relay`: removes old relay log files from a worker's disk."""

from __future__ import annotations

import click

from shardmerge.ctl import render
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.proto import master_pb2 as pb


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
