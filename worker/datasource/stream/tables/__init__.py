"""The structures of the tables along the binlog, and how their rows become rows of the stream."""
