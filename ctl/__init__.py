"""dmctl: the command line, a thin gRPC client of the master.

main parses the command line (options, settings), command_table imports the command, one module of commands/ each. It
opens a session, calls the master through client, and prints the answer as a table (render/) or as JSON (as_json);
verdict decides the exit code, error_report prints what failed. shell/ is the interactive prompt and completion, watch/
the live view of query-status, config_files/ the directory of config export and import.
"""

if __name__ != "shardmerge.ctl":  # two names would be two copies of every class
    raise ImportError("import shardmerge.ctl, not ctl")
