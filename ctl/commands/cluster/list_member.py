"""`dmctl list-member`: the masters and the workers."""

from __future__ import annotations

import click

from shardmerge.ctl import render
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.ctl.settings import split_sources
from shardmerge.proto import master_pb2 as pb


@click.command("list-member")
@click.option("-l", "--leader", is_flag=True, help="only the leader")
@click.option("-m", "--master", is_flag=True, help="only masters")
@click.option("-w", "--worker", is_flag=True, help="only workers")
@click.option("-n", "--name", "names", multiple=True, metavar="NAME[,…]", help="only members of these names")
@shared(by_source=False)
def list_member(names: tuple[str, ...], *, leader: bool, master: bool, worker: bool) -> int:
    """Show masters and workers; without a flag: all of them.

    \b
    Example:
        dmctl list-member --worker
    """
    session = Session.current()
    if not (leader or master or worker):
        leader = master = worker = True
    request = pb.ListMemberRequest(leader=leader, master=master, worker=worker, names=split_sources(names))
    answer = session.call("list-member", lambda stub: stub.ListMember, request)
    return session.show("list-member", answer, lambda: render.tables.list_member(answer))
