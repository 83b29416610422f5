"""`dmctl tls init`: the certificates of a cluster, made on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from ctl import as_json
from ctl.options import shared
from ctl.session import Session


@click.group("tls", short_help="make certificates for a cluster")
def tls() -> None:
    """Make the certificates by which dmctl, masters and workers speak TLS. No server is asked."""


@tls.command("init", short_help="an authority and one certificate for each process")
@click.argument("members", nargs=-1, metavar="NAME=HOST[,HOST]…")
@click.option("--dir", "folder", default="tls", metavar="DIRECTORY", help="where the files go  [./tls]")
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=825,
    show_default=True,
    help="how long the certificates of the processes are valid; the authority's: ten years",
)
@shared()
def init(members: tuple[str, ...], folder: str, days: int) -> int:
    """Make an authority, a certificate for each process that is named, with the hosts that others dial (names and
    addresses), and one for dmctl. etcd is one more process.

    Given again with the same --dir and other names it adds certificates of the same authority. Nothing is written over.
    Keys can be read by this user alone.

    \b
    Example:
        dmctl tls init --dir tls master-1=10.0.0.1 worker-1=10.0.0.2,worker.example etcd-1=10.0.0.1
    """
    # cryptography takes 0.1 s to import: only when it is needed
    from ctl import authority

    try:
        wanted = [authority.parse_member(text) for text in members]
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not wanted:
        raise click.UsageError(
            "tls init needs a name and its hosts: dmctl tls init master-1=10.0.0.1 worker-1=10.0.0.2"
        )
    session = Session.current()
    made = authority.make(Path(folder), wanted, days)
    if session.is_json:
        print(
            as_json.to_text(
                {"result": True, "msg": "", "dir": folder, "authority": made.authority, "made": [*made.members]}
            )
        )
        return 0
    begun = f"A new authority ({folder}/ca.pem) and certificates" if made.authority else "Certificates"
    print(f"{begun} of {', '.join(made.members)} are in {folder}.\n")
    print(_next_steps(folder, [one.name for one in wanted]))
    return 0


def _next_steps(folder: str, names: list[str]) -> str:
    name = names[0]
    return f"""\
Next, for {", ".join(names)}: copy ca.pem, NAME.pem and NAME.key to the machine of each, into a folder that only the
daemon's user may enter, and name them in its file:

    ssl-ca: /etc/shardmerge/tls/ca.pem
    ssl-cert: /etc/shardmerge/tls/{name}.pem
    ssl-key: /etc/shardmerge/tls/{name}.key

dmctl: --ssl-ca {folder}/ca.pem --ssl-cert {folder}/dmctl.pem --ssl-key {folder}/dmctl.key, or the same keys in its
--config file. Keep ca.key away from the cluster's machines: whoever has it makes certificates that all of them take."""
