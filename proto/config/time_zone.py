"""Time zones in configuration files."""

from __future__ import annotations

import re
import zoneinfo
from functools import cache
from typing import Annotated

from pydantic import AfterValidator

_OFFSET = re.compile(r"[+-](?:0\d|1[0-4]):[0-5]\d", re.ASCII)


def _is_zone(text: str) -> str:
    """A name of the time zone database, or an offset, as in DM (tiflow, dm/pkg/utils, ParseTimeZone)."""
    if not text or _OFFSET.fullmatch(text):
        return text
    # Python treats names as paths of files: names that are not in the list are not looked up.
    if text not in _zones() and text.lower() not in {"utc", "local"}:
        raise ValueError('must be the name of a time zone, e.g. Asia/Shanghai, or an offset such as "+08:00"')
    return text


@cache  # reading the list takes 10 ms: only once, and only when needed
def _zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


TimeZone = Annotated[str, AfterValidator(_is_zone)]
