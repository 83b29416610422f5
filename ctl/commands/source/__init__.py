"""Commands that concern one source."""
