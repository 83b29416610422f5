"""``extra-args`` of ``mydumpers``: the options of the dump program that do not select rows or tables."""

from __future__ import annotations

import shlex

_HARMLESS_ARGUMENTS = frozenset(
    [
        "--consistency",
        "--no-locks",
        "--transactional-consistency",
        "--skip-tz-utc",
        "--params",
        "--escape-backslash",
        "--threads",
        "-t",
        "--rows",
        "-r",
        "--filesize",
        "-F",
        "--chunk-filesize",
        "--statement-size",
        "-s",
        "--no-views",
        "-W",
        "--compress",
        "--complete-insert",
        "--read-timeout",
        "--tidb-mem-quota-query",
        "--status-addr",
        "--loglevel",
        "--logfile",
        "-L",
        "--logfmt",
    ]
)
"""Options of dumpling, and of mydumper before it, that control how to dump and not what: locks, threads, files, logs.
Views are never copied."""
_HARMLESS_WITH_VALUE = frozenset({"-t", "-r", "-F", "-s", "-L"})
"""Those of them that a value may follow without a space; after others a letter is an option of its own."""


def filtering_argument(extra_args: str) -> str:
    """The first option of dumpling that may choose rows or tables; "" if there is none. An unknown option may."""
    try:
        words = shlex.split(extra_args)
    except ValueError:
        return "an open quote"
    for word in words:
        option = word.split("=", 1)[0]
        if not word.startswith("-") or option in _HARMLESS_ARGUMENTS:
            continue
        if word[:2] not in _HARMLESS_WITH_VALUE:
            return option
    return ""
