"""`dmctl purge-relay`: makes room on a worker's disk."""

from __future__ import annotations

import click

from ctl import as_table
from ctl.options import shared
from ctl.session import Session
from proto import master_pb2 as pb


@click.command("purge-relay", short_help="remove old relay log files")
@click.option("-f", "--filename", default="", metavar="BINLOG-FILE", help="remove what lies before this binlog file")
@click.option("--sub-dir", default="", metavar="ID", help="only if this is the relay log: relaySubDir in query-status")
@shared()
def purge_relay(filename: str, sub_dir: str) -> int:
    """Remove the relay log of the sources of -s up to a binlog file, such as mysql-bin.000006.

    What a task still needs stays, and it is said why.

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
    return session.show("purge-relay", answer, lambda: as_table.purge_relay(answer))
