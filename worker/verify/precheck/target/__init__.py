"""Pre-checks of the target: ``server`` (with ``expressions``) and ``existing_rows``."""
