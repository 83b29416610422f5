"""Hook of MkDocs: links from a page to files outside of docs/ become plain text.

Such links work in a checkout and on a code host, but the built site does not contain these files.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

_LINK = re.compile(r"\[(`?)([^\]`]+)\1\]\((\.\./[^)#\s]+)[^)]*\)")
_DOCS = Path(__file__).resolve().parent


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by MkDocs for every page before it is rendered."""
    folder = PurePosixPath(page.file.src_uri).parent

    def replace(link: re.Match[str]) -> str:
        target = (_DOCS / folder / link[3]).resolve()
        return link[0] if target.is_relative_to(_DOCS) or not target.exists() else f"`{link[2]}`"

    return _LINK.sub(replace, markdown)
