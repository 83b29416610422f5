"""Parses binlog events and decodes their rows to SQL literals.

events and event_kinds parse headers and classify event types; gtid_events and gtid_set read GTIDs; query_text and
query_variables read statements; xa_events and transaction_payload read XA transactions and compressed ones. decoder
turns the event blocks of a source into row changes: it uses rows/ for row images and json/ for MySQL's binary JSON.
"""

from __future__ import annotations

from shardmerge.worker.binlog import decoder
from shardmerge.worker.binlog.rows import (
    column_codec,
    image_literals,
    image_reader,
    image_scanner,
    literal_buffer,
    numbers,
    temporal,
    text_literals,
)


def is_compiled() -> bool:
    """Whether the decoder runs as compiled code; without it a lane is about a hundred times slower."""
    rows = (image_reader, image_scanner, image_literals, literal_buffer, column_codec, numbers, temporal, text_literals)
    return all((module.__file__ or "").endswith((".so", ".pyd")) for module in (decoder, *rows))
