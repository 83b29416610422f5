"""Writes the alert rules: ``python -m deploy.prometheus --docs-url URL [--output FILE]``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from deploy.prometheus.runbooks import DEFAULT, RULES, with_docs_at


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.prometheus", description="Write the alert rules, with links to your copy of the pages."
    )
    parser.add_argument(
        "--docs-url",
        default=os.environ.get("SHARDMERGE_DOCS_URL") or DEFAULT,
        help="where docs/ is published [SHARDMERGE_DOCS_URL, as in mkdocs.yml, or %(default)s]",
    )
    parser.add_argument("--output", type=Path, help="the file to write [standard output]")
    options = parser.parse_args()
    try:
        text = with_docs_at(RULES.read_text(encoding="utf-8"), options.docs_url)
    except ValueError as error:
        parser.error(str(error))
    if options.output is None:
        sys.stdout.write(text)
    else:
        options.output.write_text(text, encoding="utf-8")


main()
