"""Reads the binlog of a source between two positions, with the relay's dump connection and group walker."""
