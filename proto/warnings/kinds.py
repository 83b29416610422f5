"""The names of warnings. Programs compare them: they never change."""

from __future__ import annotations

BINLOG_EXPIRING = "binlog-expiring"
RELAY_DISK_FILLING = "relay-disk-filling"
CLOCKS_DIFFER = "clocks-differ"
CERTIFICATE_EXPIRING = "certificate-expiring"
