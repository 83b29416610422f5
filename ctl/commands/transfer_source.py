"""`dmctl transfer-source`: another worker takes a source over."""

from __future__ import annotations

import click

from ctl import as_table
from ctl.options import shared
from ctl.session import Session
from proto import master_pb2 as pb


@click.command("transfer-source", short_help="give a source to another worker")
@click.argument("source_id", metavar="SOURCE-ID")
@click.argument("worker", metavar="WORKER")
@shared()
def transfer_source(source_id: str, worker: str) -> int:
    """Give a source to a free worker. Its tasks go on there from their checkpoints.

    \b
    Example:
        dmctl transfer-source mysql-01 worker-2
    """
    session = Session.current()
    request = pb.TransferSourceRequest(source=source_id, worker=worker)
    answer = session.call("transfer-source", lambda master: master.TransferSource, request)
    return session.show("transfer-source", answer, lambda: as_table.transfer_source(answer))
