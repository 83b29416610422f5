"""Takes secrets out of texts of the history: statements and messages of servers may quote them. Pure.

What has the form of a secret is masked, whoever wrote it. A statement of a source is executed with its own text: only
the entry about it has the mask.
"""

from __future__ import annotations

import re

from shardmerge.proto.config.document.masking import MASK
from shardmerge.proto.config.document.redacted import scrubbed

# A text may be cut within a literal.
_LITERAL = r"""(?:'(?:[^'\\]|\\.|'')*+(?:'|\Z)|"(?:[^"\\]|\\.|"")*+(?:"|\Z))"""
_NAME = r"[\w$]*(?:password|passwd|secret|credential|token|api_?key)[\w$]*[`\"']?"
_IN_SQL = re.compile(
    rf"(\bIDENTIFIED\s+(?:(?:WITH|VIA)\s+\S+\s+)?(?:BY|AS|USING)\s+(?:PASSWORD\s*)?\(?\s*"
    rf"|\b{_NAME}(?:\s*[=:(]\s*|\s+)|\bAUTHENTICATION\s+STRING\s+){_LITERAL}",
    re.IGNORECASE | re.DOTALL,
)
_BARE = re.compile(rf"(\b{_NAME}\s*[=:]\s*)(?!YES\b|NO\b|'|\"|\(|\*)[^\s,;)]+", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """``text`` with a mask instead of each secret."""
    return _BARE.sub(rf"\1{MASK}", _IN_SQL.sub(rf"\1'{MASK}'", scrubbed(text)))
