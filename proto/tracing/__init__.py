"""Operation ids, which connect the log lines of one command at all daemons, and optional traces with OpenTelemetry.

`docs/how-to/logs-and-traces.md` is their page.
"""
