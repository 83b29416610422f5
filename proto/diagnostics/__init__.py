"""What a daemon keeps and reports about itself for `dmctl support-bundle`: bounded, and without secrets.

``row_values`` leaves values of rows out of errors and texts. ``log_event`` makes a line without secrets of a log event,
``recent_lines`` keeps the last ones. ``metrics_window`` keeps the metrics of the last minutes. ``host`` reads the
process and the machine. ``self_report`` reads the stacks of threads and makes the answer to the RPC.
"""
