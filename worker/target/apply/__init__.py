"""A batch of changes becomes SQL at the target, and affected-row counts prove the result.

upserts          changes of rows that the target may lack are resolved against the target's rows
key_condition    the condition that finds rows by their keys (pure)
dml              the batch as SQL statements (pure)
target_session   the lane's connection to the target: sends statements, repeats failed attempts
affected_rows    checks the row counts, classifies a refusal
row_lookup       which keys have rows at the target
row_bisect       finds the refused rows of a refused batch by bisection
"""
