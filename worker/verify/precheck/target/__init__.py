"""Pre-checks of the target: ``server`` (with ``expressions``) ``existing_rows`` and ``triggers``."""
