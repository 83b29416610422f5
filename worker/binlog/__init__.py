"""Binlog events: parsing what bounds them, decoding their rows to SQL literals."""

from __future__ import annotations

from worker.binlog import decoder, images, imagescan, imagetext, literalbuffer, values


def is_compiled() -> bool:
    """Whether the decoder runs as compiled code; without it a lane is about a hundred times slower."""
    compiled = (decoder, images, imagescan, imagetext, literalbuffer, values)
    return all((module.__file__ or "").endswith((".so", ".pyd")) for module in compiled)
