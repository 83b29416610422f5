"""`dmctl tls`: makes and revokes the certificates of a cluster on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from shardmerge.ctl import as_json
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session

_FOLDER = click.option("--dir", "folder", default="tls", metavar="DIRECTORY", help="folder of the files  [./tls]")


@click.group("tls")
def tls() -> None:
    """Make, and revoke, the certificates for TLS between dmctl, masters, workers and etcd. No server is called."""


@tls.command("init", short_help="an authority and one certificate for each process")
@click.argument("members", nargs=-1, metavar="NAME=HOST[,HOST]…")
@_FOLDER
@click.option("--etcd", multiple=True, metavar="NAME=HOST[,HOST]…", help="a member of etcd; may be repeated")
@click.option("--client", multiple=True, metavar="NAME", help="a caller without access to etcd; may be repeated")
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=825,
    show_default=True,
    help="how long the certificates of the processes are valid; the authority's: ten years",
)
@shared(by_source=False)
def init(members: tuple[str, ...], folder: str, etcd: tuple[str, ...], client: tuple[str, ...], days: int) -> int:
    """Make an authority, a certificate for each named master and worker, with the hosts that others connect to (names
    and addresses), and one for dmctl. With --etcd make another authority, in the folder etcd, for etcd's members, and a
    second certificate for each master and worker, its clients. dmctl and each --client get none.

    Run again with the same --dir and other names it adds certificates of the same authorities; a NAME alone gets the
    one of its two certificates that it does not have. No file is overwritten. Only this user can read the keys.

    \b
    Example:
        dmctl tls init --dir tls --etcd etcd-1=10.0.0.1 master-1=10.0.0.1 worker-1=10.0.0.2,worker.example
    """
    # importing cryptography takes 0.1 s: only when needed
    from shardmerge.ctl import certificate_authority as authority

    try:
        processes = [authority.parse_member(text) for text in members]
        clients = [authority.CertificateSubject(authority.parse_name(text), None) for text in client]
        of_etcd = [authority.parse_member(text) for text in etcd]
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not (processes or clients or of_etcd):
        raise click.UsageError(
            "tls init needs names and their hosts: dmctl tls init --etcd etcd-1=10.0.0.1 master-1=10.0.0.1 "
            "worker-1=10.0.0.2"
        )
    made, made_of_etcd = authority.make(Path(folder), [*processes, *clients], days, etcd=of_etcd)
    if Session.current().is_json:
        answer = _answer(folder, authority=made.authority, made=[*made.members])
        if made_of_etcd is not None:
            answer |= {"etcdAuthority": made_of_etcd.authority, "etcdMade": [*made_of_etcd.members]}
        print(as_json.to_text(answer))
        return 0
    for place, each in ((folder, made), (f"{folder}/{authority.ETCD}", made_of_etcd)):
        if each is not None and each.members:
            begun = f"A new authority ({place}/ca.pem) and certificates" if each.authority else "Certificates"
            print(f"{begun} of {', '.join(each.members)} are in {place}.")
    if of_etcd:
        print(_steps_of_etcd(folder, of_etcd[0].name))
    if processes:
        print(_steps_of_processes(folder, [one.name for one in processes], has_etcd=made_of_etcd is not None))
    print(f"""
dmctl: --ssl-ca {folder}/ca.pem --ssl-cert {folder}/dmctl.pem --ssl-key {folder}/dmctl.key, or the same keys in its
--config file. Keep each ca.key away from the cluster's machines: with it anyone can make certificates that all of them
accept.""")
    return 0


def _answer(folder: str, **fields: as_json.Json) -> dict[str, as_json.Json]:
    return {"result": True, "msg": "", "dir": folder, **fields}


def _steps_of_etcd(folder: str, name: str) -> str:
    return f"""
Next, for etcd: copy ca.pem, ca.crl, NAME.pem and NAME.key of {folder}/etcd to each member's machine, and start it with

    --client-cert-auth --trusted-ca-file ca.pem --cert-file {name}.pem --key-file {name}.key --client-crl-file ca.crl

Several members need the same between each other: --peer-client-cert-auth, --peer-trusted-ca-file, --peer-cert-file,
--peer-key-file, --peer-crl-file."""


def _steps_of_processes(folder: str, names: Sequence[str], *, has_etcd: bool) -> str:
    files = {"ca": "ca.pem", "cert": f"{names[0]}.pem", "key": f"{names[0]}.key"}
    lines = [f"    ssl-{key}: /etc/shardmerge/tls/{file}" for key, file in files.items()]
    lines += [f"    etcd-ssl-{key}: /etc/shardmerge/tls/etcd/{file}" for key, file in files.items() if has_etcd]
    also = " (and those of the folder etcd)" if has_etcd else ""
    warning = f"""

An etcd that trusts this ca.pem lets each holder of a certificate, dmctl's too, write all records. An authority of its
own: dmctl tls init --dir {folder} --etcd etcd-1=10.0.0.1 {" ".join(names)}"""
    return f"""
Next, for {", ".join(names)}: copy ca.pem, NAME.pem and NAME.key{also}
to the machine of each, into a folder that only the daemon's user may enter, and name them in its file:

{chr(10).join(lines)}{"" if has_etcd else warning}"""


@tls.command("revoke", short_help="certificates that were stolen")
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@_FOLDER
@shared(by_source=False)
def revoke(names: tuple[str, ...], folder: str) -> int:
    """Add the certificates NAME.pem to the list of their authority, ca.crl, in the folder and in its folder etcd. etcd
    refuses them when it has the new file. Masters and workers have no such list: the answer has the value for
    cert-allowed-cn that leaves them out.

    \b
    Example:
        dmctl tls revoke --dir tls worker-1
    """
    from shardmerge.ctl import certificate_authority as authority

    try:
        revoked = authority.revoke(Path(folder), [authority.parse_name(name) for name in names])
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if Session.current().is_json:
        answer = _answer(folder, revoked=[*revoked.processes], etcdRevoked=[*revoked.etcd])
        print(as_json.to_text({**answer, "certAllowedCn": [*revoked.accepted]}))
        return 0
    if revoked.etcd:
        print(f"""\
{", ".join(revoked.etcd)}: replace each etcd's file of --client-crl-file (--peer-crl-file) with {folder}/etcd/ca.crl.
It then refuses new connections. Open ones continue: restart each etcd.
""")
    if revoked.processes:
        print(f"""\
{", ".join(revoked.processes)}: let the file of each master and worker have this line, and restart them:

    cert-allowed-cn: [{", ".join(revoked.accepted)}]

If etcd trusts {folder}/ca.pem, too, its file must be {folder}/ca.crl.
""")
    print("All steps: docs/how-to/certificate-stolen.md")
    return 0
