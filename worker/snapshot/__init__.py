"""The snapshot unit: copies a source's tables chunk by chunk, without locks (design, Snapshot)."""
