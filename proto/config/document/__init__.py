"""Configuration files as documents with positions: YAML, TOML, masking and repair."""
