"""gRPC between the programs.

client opens channels and reads the coded error of a failed call; server makes servers and binds them. A server passes
every call through call_guard: admission admits it within limits, caller knows who sent it, wire counts a large message
before it is parsed, fields checks every field, call_counts counts the calls. coded_errors carries errors as metadata,
options are common to both ends. source_checks makes the error of a source from the answer of its checks.
"""
