"""Sets the address of the documentation in the alert rules. Pure but for the file that it reads."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

RULES = Path(__file__).with_name("shardmerge.rules.yml")
DEFAULT = "https://shardmerge.example"
"""The address in the file, and that of `site_url` in mkdocs.yml, without a slash at the end. Such a host exists
nowhere (RFC 2606)."""
_ALERT = re.compile(r"^( +runbook_url: )\S+(/runbooks/\w+/)$", re.MULTILINE)


def with_docs_at(rules: str, url: str) -> str:
    """``rules`` with the pages of the alerts below ``url``. Raises ValueError with the reason if it is no such
    address."""
    base = checked(url)
    return _ALERT.sub(lambda found: f"{found[1]}{base}{found[2]}", rules)


def checked(url: str) -> str:
    """``url`` without slashes at its end. It becomes part of a YAML file and of a link that people click."""
    if re.fullmatch(r"https?://[\w.~%/:\[\]@-]+", url, re.ASCII) is None:
        raise ValueError(f"{url!r} must be an address such as https://docs.example.com/shardmerge")
    parts = urlsplit(url)
    if not parts.hostname or "@" in parts.netloc:
        raise ValueError(f"{url!r} must name a host, and no user")
    return url.rstrip("/")
