"""`dmctl transfer-source`: another worker takes over a source."""

from __future__ import annotations

import click

from shardmerge.ctl import render
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.proto import master_pb2 as pb


@click.command("transfer-source")
@click.argument("source_id", metavar="SOURCE-ID")
@click.argument("worker", metavar="WORKER")
@shared(by_source=False)
def transfer_source(source_id: str, worker: str) -> int:
    """Move a source to a free worker. Its tasks continue there from their checkpoints.

    \b
    Example:
        dmctl transfer-source mysql-01 worker-2
    """
    session = Session.current()
    request = pb.TransferSourceRequest(source=source_id, worker=worker)
    answer = session.call("transfer-source", lambda master: master.TransferSource, request)
    return session.show("transfer-source", answer, lambda: render.tables.transfer_source(answer))
