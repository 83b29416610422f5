"""The state at the position of the DataFrame: a later SELECT, and the changes of the binlog since then taken back."""
