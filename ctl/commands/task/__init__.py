"""Commands that concern one task."""
