# Only what this repository uses.
