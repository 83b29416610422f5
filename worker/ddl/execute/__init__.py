"""Step 4 of a DDL: run the actions at the target, each statement once.

statement_context   what the work on one statement needs, and how its statements run at the target
source_session      finds the session settings of the source's statement; time_zone: its time zone as an offset
structure_check     the structure after the statement, and refusals of statements that would differ at the target
executor            executes each action, also with an operator's override
optimistic          a shard table's ALTER under shard-mode optimistic; widen_target: a new shard table's columns
remove_rows         DROP and TRUNCATE of a shard table; rename_targets: RENAME
run_once            runs a statement at the target once (I6); run_parts: in parts, where it does not run the whole;
                    other_tasks: stops before one that changes values of another task
operator_run        runs an operator's statement once
"""
