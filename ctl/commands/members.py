"""`dmctl operate-leader`, `offline-member`: who leads, and who is given up."""

from __future__ import annotations

import click

from ctl import as_json
from ctl.options import shared
from ctl.session import Session
from proto import master_pb2 as pb


def _say(session: Session, msg: str) -> int:
    print(as_json.to_text({"result": True, "msg": msg}) if session.is_json else msg)
    return 0


@click.command("operate-leader", short_help="let another master lead")
@click.argument("op", type=click.Choice(["evict", "cancel-evict"]))
@shared()
def operate_leader(op: str) -> int:
    """Let the leader stand back, so that another master leads until `cancel-evict`; tasks go on meanwhile.

    cancel-evict asks every master that is alive: all may lead again.

    \b
    Example:
        dmctl operate-leader evict
    """
    session = Session.current()
    if op == "evict":
        request = pb.OperateLeaderRequest(op=pb.OperateLeaderRequest.OP_EVICT)
        answer = session.call("operate-leader", lambda master: master.OperateLeader, request)
        return _say(session, answer.msg)
    from ctl.client import MasterClient

    request = pb.OperateLeaderRequest(op=pb.OperateLeaderRequest.OP_CANCEL_EVICT)
    members = session.call("operate-leader", lambda master: master.ListMember, pb.ListMemberRequest(master=True))
    said: list[str] = []
    for member in members.masters:
        with MasterClient((member.addr,), session.settings.timeout, session.settings.tls) as client:
            said.append(client.call("operate-leader", lambda master: master.OperateLeader, request).msg)
    return _say(session, "\n".join(said))


@click.command("offline-member", short_help="forget a worker that will not come back")
@click.option("-m", "--master", is_flag=True, help="a master")
@click.option("-w", "--worker", "is_worker", is_flag=True, help="a worker")
@click.option("-n", "--name", required=True, metavar="NAME", help="of the member, which must be dead")
@shared()
def offline_member(name: str, *, master: bool, is_worker: bool) -> int:
    """Forget a member that is dead. A worker's source is free then for any other; a dead master is forgotten by itself.

    \b
    Example:
        dmctl offline-member --worker --name worker-3
    """
    if master == is_worker:
        raise click.UsageError("offline-member needs one of --master and --worker")
    session = Session.current()
    request = pb.OfflineMemberRequest(type="master" if master else "worker", name=name)
    answer = session.call("offline-member", lambda stub: stub.OfflineMember, request)
    return _say(session, answer.msg)
