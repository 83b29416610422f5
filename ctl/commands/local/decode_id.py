"""`dmctl decode-id`: finds the shard table of a merged id."""

from __future__ import annotations

import json

import click

from shardmerge.ctl.files import read_text
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session


@click.command("decode-id")
@click.argument("file", metavar="TASK-FILE")
@click.argument("merged", metavar="ID", type=int)
@click.option(
    "-t", "--table", default="", metavar="SCHEMA.TABLE", help="only mappings of tables that go to this target"
)
@shared(by_source=False)
def decode_id(file: str, merged: int, table: str) -> int:
    """Decode an id that the column mapping `partition id` has made: source, schema, table and the id in the shard
    table. No server is called: the task file is enough. Each answer has the SQL that does the same at the target, for a
    SELECT and for a WHERE.

    \b
    Example:
        dmctl decode-id merge.yaml 580999811718774787
    """
    from shardmerge.ctl.merged_id import decode  # the models of configuration files take 0.2 s

    found = decode(read_text(file), file, merged, table)
    if Session.current().is_json:
        print(json.dumps({"result": True, "ids": [each.to_dict() for each in found]}, indent=4, ensure_ascii=False))
    else:
        print("\n\n".join("\n".join(each.lines()) for each in found))
    return 0
