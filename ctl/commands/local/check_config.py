"""`dmctl check-config`: checks configuration files on this machine, without a server."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shardmerge.ctl import as_json
from shardmerge.ctl.as_json import Json
from shardmerge.ctl.files import read_text
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.ctl.settings import OutputFormat
from shardmerge.proto import errors

if TYPE_CHECKING:
    from shardmerge.proto.config.check import Checked, FileKind

_KINDS = ("task", "source", "master", "worker")


@click.command("check-config")
@click.argument("files", metavar="FILE…", nargs=-1)
@click.option("--kind", type=click.Choice(_KINDS), help="what the files are  [default: recognised by their keys]")
@click.option("--json-schema", type=click.Choice(_KINDS), help="print the JSON Schema of such a file, for editors")
@click.option("--sample", type=click.Choice(_KINDS), help="print such a file with comments, to start from")
@shared(by_source=False)
def check_config(files: tuple[str, ...], kind: str | None, json_schema: str | None, sample: str | None) -> int:
    """Check task and source files, and those of dm-master and dm-worker: one line per finding, and the notes.

    No server is called. Encrypted passwords are tested with the key of SHARDMERGE_SECRET_KEY, if there is one. Exit
    code 0 if every file is correct (notes are no findings), else 1.

    \b
    Example:
        dmctl check-config merge.yaml mysql-01.yaml
    """
    # Importing pydantic takes 0.2 s: only when needed.
    from shardmerge.proto import secret
    from shardmerge.proto.config.check import MODELS, FileKind
    from shardmerge.proto.config.docs.json_schema import schema_text
    from shardmerge.proto.config.docs.samples import sample_of

    if sample is not None:
        print(sample_of(MODELS[FileKind(sample)]), end="")
        return 0
    if json_schema is not None:
        print(schema_text(FileKind(json_schema)), end="")
        return 0
    if not files:
        raise click.UsageError("check-config needs at least one file")
    session = Session.current()
    secret.use(session.settings.secret_key_path)
    wanted = None if kind is None else FileKind(kind)
    found = [_checked(path, wanted) for path in _paths(files)]
    # In a pipe too, lines are what editors and build servers read.
    if session.settings.output is OutputFormat.JSON:
        print(
            as_json.to_text({"result": not any(one.findings for one in found), "files": [_json(one) for one in found]})
        )
    else:
        for one in found:
            for line in (*one.findings, *one.notes):
                print(line)
            if not one.findings:
                print(f"{one.file}: a {one.kind.value if one.kind else ''} file without findings")
    return 1 if any(one.findings for one in found) else 0


def _checked(path: str, kind: FileKind | None) -> Checked:
    """Check one file. A file that cannot be read is one more finding: the others are still checked."""
    from shardmerge.proto.config.check import Checked, check_text
    from shardmerge.proto.config.finding import ConfigFinding

    try:
        if Path(path).is_dir():
            raise errors.ctl.FILE_UNREADABLE(path=path, reason="is a directory; give its files, e.g. *.yaml in it")
        text = read_text(path)
    except errors.ShardmergeError as error:
        reason = error.message.removeprefix(f"{path}: ")
        return Checked(path, kind, (ConfigFinding(path, 0, 0, "", reason, spec=error.spec),))
    return check_text(text, path, kind)


def _paths(arguments: tuple[str, ...]) -> list[str]:
    """Files, once each; patterns that no shell has expanded are expanded."""
    paths: list[str] = []
    for text in arguments:
        matching = sorted(glob.glob(text)) if not Path(text).exists() and glob.has_magic(text) else []
        paths += matching or [text]
    return list(dict.fromkeys(paths))


def _json(one: Checked) -> dict[str, Json]:
    return {
        "file": one.file,
        "kind": one.kind.value if one.kind else "",
        "result": not one.findings,
        "findings": [
            {
                "line": found.line,
                "column": found.column,
                "key": found.key,
                "message": found.message,
                "suggestion": found.suggestion,
                "code": found.spec.code,
                "name": found.spec.name,
            }
            for found in one.findings
        ],
        "notes": [{"line": note.line, "text": note.text} for note in one.notes],
    }
