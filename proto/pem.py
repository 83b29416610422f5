"""Certificates and their keys as text (RFC 7468)."""

from __future__ import annotations

import base64
import binascii

PEM = "-----BEGIN "
"""Every such text contains this."""


def pem_of(content: str) -> str:
    """The PEM text of a value that is PEM text already, or base64 of it. Raises ValueError."""
    if PEM in content:
        return content
    try:
        text = base64.b64decode("".join(content.split()), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        text = ""
    if PEM not in text:
        raise ValueError("holds no PEM text")
    return text
