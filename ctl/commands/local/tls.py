"""`dmctl tls init`: makes the certificates of a cluster on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from shardmerge.ctl import as_json
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session


@click.group("tls")
def tls() -> None:
    """Make the certificates for TLS between dmctl, masters and workers. No server is called."""


@tls.command("init", short_help="an authority and one certificate for each process")
@click.argument("members", nargs=-1, metavar="NAME=HOST[,HOST]…")
@click.option("--dir", "folder", default="tls", metavar="DIRECTORY", help="folder of the files  [./tls]")
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=825,
    show_default=True,
    help="how long the certificates of the processes are valid; the authority's: ten years",
)
@shared(by_source=False)
def init(members: tuple[str, ...], folder: str, days: int) -> int:
    """Make an authority, a certificate for each named process, with the hosts that others connect to (names and
    addresses), and one for dmctl. etcd is one more process.

    Run again with the same --dir and other names it adds certificates of the same authority. No file is overwritten.
    Only this user can read the keys.

    \b
    Example:
        dmctl tls init --dir tls master-1=10.0.0.1 worker-1=10.0.0.2,worker.example etcd-1=10.0.0.1
    """
    # importing cryptography takes 0.1 s: only when needed
    from shardmerge.ctl import certificate_authority

    try:
        wanted = [certificate_authority.parse_member(text) for text in members]
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not wanted:
        raise click.UsageError(
            "tls init needs a name and its hosts: dmctl tls init master-1=10.0.0.1 worker-1=10.0.0.2"
        )
    session = Session.current()
    made = certificate_authority.make(Path(folder), wanted, days)
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
--config file. Keep ca.key away from the cluster's machines: with it anyone can make certificates that all of them
accept."""
