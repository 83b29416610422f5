"""`dmctl decode-id`: which shard table is a merged id of?"""

from __future__ import annotations

import json

import click

from ctl.decoded import decoded
from ctl.files import read_text
from ctl.options import shared
from ctl.session import Session


@click.command("decode-id", short_help="which shard table a merged id is of")
@click.argument("file", metavar="TASK-FILE")
@click.argument("merged", metavar="ID", type=int)
@click.option(
    "-t", "--table", default="", metavar="SCHEMA.TABLE", help="only mappings of tables that go to this target"
)
@shared()
def decode_id(file: str, merged: int, table: str) -> int:
    """Take an id that the column mapping `partition id` has made apart: source, schema, table and the id in the shard
    table. Nobody is asked: the task file tells it. Each answer has the SQL that does the same at the target, for a
    SELECT and for a WHERE.

    \b
    Example:
        dmctl decode-id merge.yaml 580999811718774787
    """
    found = decoded(read_text(file), file, merged, table)
    if Session.current().is_json:
        print(json.dumps({"result": True, "ids": [each.to_dict() for each in found]}, indent=4, ensure_ascii=False))
    else:
        print("\n\n".join("\n".join(each.lines()) for each in found))
    return 0
