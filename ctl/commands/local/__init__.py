"""Commands that need no master."""
