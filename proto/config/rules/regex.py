"""Regular expressions of users, in RE2's syntax: they take linear time, whatever the text.

DM's are Go's, which are RE2's (https://github.com/google/re2/wiki/Syntax): no look-around and no
back-references. Python's own engine would hang on `(a+)+$` and a name of forty characters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import re2

_MAX_BYTES = 1 << 20
"""The most memory for one compiled expression; RE2's own default is 8 MiB. Beyond it the error is "pattern too
large"."""


class RegexError(ValueError):
    """The text is no regular expression; the message has the reason, without quoting the text."""


@dataclass(frozen=True, slots=True)
class Regex:
    """A regular expression that compiles. Made by :func:`compile_regex`; picklable."""

    text: str
    ignore_case: bool = False

    @property
    def group_count(self) -> int:
        return _compiled(self.text, self.ignore_case).groups

    def matches(self, text: str) -> bool:
        """Whether it is found anywhere in ``text``."""
        return _compiled(self.text, self.ignore_case).search(text) is not None

    def groups(self, text: str) -> tuple[str, ...] | None:
        """The groups of the first match in ``text``, "" for a group without a match; None: no match."""
        return _groups(self.text, self.ignore_case, text)


def compile_regex(text: str, *, ignore_case: bool = False) -> Regex:
    """The expression; raises :class:`RegexError`."""
    try:
        _compiled(text, ignore_case)
    except re2.error as error:
        # "missing closing ]: [a-" quotes the text, which the caller shows if it may be shown.
        message = error.args[0] if error.args else b""
        reason = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
        raise RegexError(f"not a regular expression: {reason.partition(': ')[0] or 'cannot be read'}") from error
    except UnicodeEncodeError as error:
        raise RegexError("not a regular expression: it holds half of a surrogate pair") from error
    return Regex(text, ignore_case)


@lru_cache(maxsize=16384)
def _groups(text: str, ignore_case: bool, searched: str) -> tuple[str, ...] | None:
    """Of names of tables, which each statement and each status looks at again: RE2's wrapper takes 10 microseconds."""
    found = _compiled(text, ignore_case).search(searched)
    return None if found is None else tuple(group or "" for group in found.groups())


@lru_cache(maxsize=4096)
def _compiled(text: str, ignore_case: bool) -> re2._Regexp:  # pyright: ignore[reportPrivateUsage]
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    options.max_mem = _MAX_BYTES
    return re2.compile(text, options)
