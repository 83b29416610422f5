"""The interactive prompt and shell completion."""
