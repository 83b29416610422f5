"""`dmctl support-bundle`: one file with a redacted picture of the cluster, to read and to pass on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shardmerge.ctl import as_json
from shardmerge.ctl.as_json import Json
from shardmerge.ctl.error_report import flat
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.proto import errors

if TYPE_CHECKING:
    from shardmerge.ctl.bundle.contents import NotCollected

_EXISTS = "something is there already, and it is not replaced"


@click.command("support-bundle")
@click.option(
    "-o",
    "--output-file",
    "path",
    default="",
    metavar="FILE",
    help="the file, which must not exist (mode 0600)  [default: ./shardmerge-support-<UTC time>.tar.gz]",
)
@shared(by_source=False)
def support_bundle(path: str) -> int:
    """Collect configurations, members, status, locks, the last warnings, metrics and thread stacks of all daemons, and
    the state of etcd. The file has no passwords, keys, certificates, rows, relay logs or log files. It names hosts,
    accounts, tasks and tables: read it before you pass it on.

    A daemon that does not answer is listed in the README of the file; the command succeeds.

    \b
    Example:
        dmctl support-bundle -o /tmp/cluster.tar.gz
    """
    from importlib.metadata import version

    from shardmerge.ctl.bundle.archive import Archive  # imports of gRPC take 0.2 s: only when needed
    from shardmerge.ctl.bundle.collect import Collection
    from shardmerge.ctl.bundle.contents import BundleFile, NotCollected, readme

    session = Session.current()
    now = time.time()
    folder = f"shardmerge-support-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}"
    path = path or f"{folder}.tar.gz"
    files: list[BundleFile] = []
    missing: list[NotCollected] = []
    try:
        with Archive(Path(path), folder, now) as archive:
            collection = Collection(session)
            for item in collection.items():
                if isinstance(item, NotCollected):
                    missing.append(item)
                else:
                    archive.add(item.name, item.text.encode(errors="backslashreplace"))
                    files.append(BundleFile(item.name, "", item.about))  # the text is written
            made_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
            master = session.client.address
            origin = f"Made at {made_at} by dmctl {version('shardmerge')} from master {master}."
            index = readme(origin, collection.errors, collection.warnings, files, missing)
            archive.add(index.name, index.text.encode(errors="backslashreplace"))
    except FileExistsError as error:
        raise errors.ctl.WRITE_FAILED(path=path, reason=_EXISTS) from error
    except OSError as error:
        raise errors.ctl.WRITE_FAILED(path=path, reason=(error.strerror or str(error)).lower()) from error
    _print_result(session, path, len(files) + 1, missing)
    return 0


def _print_result(session: Session, path: str, files: int, missing: list[NotCollected]) -> None:
    if session.is_json:
        rest: list[Json] = [{"what": one.what, "error": one.error, "workaround": one.workaround} for one in missing]
        print(as_json.to_text({"result": True, "msg": "", "file": path, "files": files, "notCollected": rest}))
        return
    print(f"{path}: {files} files, {Path(path).stat().st_size} bytes; it names hosts, accounts, tasks and tables")
    for one in missing:
        # The texts of other daemons reach the terminal here.
        print(f"not collected: {flat(one.what)}: {flat(one.error)}")
