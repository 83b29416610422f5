"""Which installed packages a package needs, by their metadata. Pure.

The markers of requirements are not evaluated: what is installed and named is needed, whatever the platform.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_SEPARATORS = re.compile(r"[-_.]+")
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")


def normal_name(name: str) -> str:
    """The name of a package as indexes compare it."""
    return _SEPARATORS.sub("-", name).lower()


def needed(roots: Iterable[str], requirements: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """The packages ``roots`` with all that they need. ``requirements``: of each installed package, as lines of its
    metadata, by its normal name. What is not installed is left out."""
    found: set[tuple[str, str]] = set()
    # Of a package, "" is the package itself, and other texts are extras of it.
    waiting = [(normal_name(root), "") for root in roots]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in found or name not in requirements:
            continue
        found.add((name, extra))
        for line in requirements[name]:
            text, _, marker = line.partition(";")
            extras = set(_EXTRA.findall(marker)) or {""}
            if extra in {normal_name(one) if one else "" for one in extras}:
                waiting += _wanted(text)
    return frozenset(name for name, _ in found)


def _wanted(text: str) -> list[tuple[str, str]]:
    match = _REQUIREMENT.match(text)
    if match is None:
        return []
    name, extras = normal_name(match[1]), (match[2] or "").split(",")
    return [(name, ""), *((name, normal_name(extra.strip())) for extra in extras if extra.strip())]
