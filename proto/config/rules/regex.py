"""Regular expressions of users, in RE2's syntax: they take linear time, whatever the text.

DM's are Go's, which are RE2's (https://github.com/google/re2/wiki/Syntax): no look-around and no
back-references. Python's own engine would hang on `(a+)+$` and a name of forty characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import re2

_MAX_BYTES = 1 << 20
"""The most memory for one compiled expression; RE2's own default is 8 MiB. Beyond it the error is "pattern too
large"."""

_MOST_CHARACTERS = 1 << 16
_MOST_NESTED = 100
_MOST_CLASSES = 20
"""Each class of Unicode, such as ``\\pL``, becomes hundreds of ranges before RE2 compares it with the memory."""
_MOST_GROUPS = 100
"""A match takes time for each group and each state: thousands of groups take seconds for one name."""
_TOKEN = re.compile(r"\\(.)|\[\^?\]?(?:\\.|[^\]\\])*\]|[()]", re.DOTALL)
_CLASS = re.compile(r"\\[pP]")


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
        return _compiled(self.text, self.ignore_case, captures=False).search(text) is not None

    def groups(self, text: str) -> tuple[str, ...] | None:
        """The groups of the first match in ``text``, "" for a group without a match; None: no match."""
        return _groups(self.text, self.ignore_case, text)


def compile_regex(text: str, *, ignore_case: bool = False, needs_groups: bool = False) -> Regex:
    """The expression; ``needs_groups``: its groups are wanted. Raises :class:`RegexError`; for what would take long
    before it is compiled."""
    _refuse_complex(text)
    try:
        if _compiled(text, ignore_case).groups > _MOST_GROUPS and needs_groups:
            raise RegexError(f"has more than {_MOST_GROUPS} groups")
    except re2.error as error:
        # "missing closing ]: [a-" quotes the text, which the caller shows if it may be shown.
        message = error.args[0] if error.args else b""
        reason = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
        raise RegexError(f"not a regular expression: {reason.partition(': ')[0] or 'cannot be read'}") from error
    except UnicodeEncodeError as error:
        raise RegexError("not a regular expression: it holds half of a surrogate pair") from error
    return Regex(text, ignore_case)


def _refuse_complex(text: str) -> None:
    if len(text) > _MOST_CHARACTERS:
        raise RegexError(f"is longer than {_MOST_CHARACTERS} characters")
    depth = classes = 0
    for token in _TOKEN.finditer(text):
        # A class in brackets may have classes of Unicode, too.
        classes += token[1] in ("p", "P") if token[1] else len(_CLASS.findall(token[0]))
        depth = max(0, depth + (token[0] == "(") - (token[0] == ")"))
        if depth > _MOST_NESTED:
            raise RegexError(f"has more than {_MOST_NESTED} parentheses nested in each other")
        if classes > _MOST_CLASSES:
            raise RegexError(f"has more than {_MOST_CLASSES} classes of Unicode (\\p)")


@lru_cache(maxsize=16384)
def _groups(text: str, ignore_case: bool, searched: str) -> tuple[str, ...] | None:
    """Of names of tables, which each statement and each status looks at again: RE2's wrapper takes 10 microseconds."""
    found = _compiled(text, ignore_case).search(searched)
    return None if found is None else tuple(group or "" for group in found.groups())


@lru_cache(maxsize=4096)
def _compiled(text: str, ignore_case: bool, captures: bool = True) -> re2._Regexp:  # pyright: ignore[reportPrivateUsage]
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    options.max_mem = _MAX_BYTES
    options.never_capture = not captures
    return re2.compile(text, options)
