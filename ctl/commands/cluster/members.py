"""`dmctl list-member`, `operate-leader`, `offline-member`: the masters and workers, which master leads, and which dead
members are forgotten."""

from __future__ import annotations

import click

from shardmerge.ctl import as_json, render
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.ctl.settings import split_sources
from shardmerge.proto import master_pb2 as pb


def _print_message(session: Session, msg: str) -> int:
    print(as_json.to_text({"result": True, "msg": msg}) if session.is_json else msg)
    return 0


@click.command("operate-leader")
@click.argument("op", type=click.Choice(["evict", "cancel-evict"]))
@shared(by_source=False)
def operate_leader(op: str) -> int:
    """Make the current leader step down and keep it from leading until `cancel-evict`; tasks continue meanwhile.

    cancel-evict calls every live master: all may lead again.

    \b
    Example:
        dmctl operate-leader evict
    """
    session = Session.current()
    if op == "evict":
        request = pb.OperateLeaderRequest(op=pb.OperateLeaderRequest.OP_EVICT)
        answer = session.call("operate-leader", lambda master: master.OperateLeader, request)
        return _print_message(session, answer.msg)
    from shardmerge.ctl.client import MasterClient

    request = pb.OperateLeaderRequest(op=pb.OperateLeaderRequest.OP_CANCEL_EVICT)
    members = session.call("operate-leader", lambda master: master.ListMember, pb.ListMemberRequest(master=True))
    messages: list[str] = []
    for member in members.masters:
        with MasterClient(session.settings, (member.addr,)) as client:
            messages.append(client.call("operate-leader", lambda master: master.OperateLeader, request).msg)
    return _print_message(session, "\n".join(messages))


@click.command("offline-member")
@click.option("-m", "--master", is_flag=True, help="a master")
@click.option("-w", "--worker", "is_worker", is_flag=True, help="a worker")
@click.option("-n", "--name", required=True, metavar="NAME", help="name of the member, which must be dead")
@shared(by_source=False)
def offline_member(name: str, *, master: bool, is_worker: bool) -> int:
    """Forget a dead member. A worker's source is then free for any other worker; a dead master is forgotten by itself.

    \b
    Example:
        dmctl offline-member --worker --name worker-3
    """
    if master == is_worker:
        raise click.UsageError("offline-member needs one of --master and --worker")
    session = Session.current()
    request = pb.OfflineMemberRequest(type="master" if master else "worker", name=name)
    answer = session.call("offline-member", lambda stub: stub.OfflineMember, request)
    return _print_message(session, answer.msg)


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
