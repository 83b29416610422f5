"""`shard-ddl preview`: computes the effects of a sharding DDL on a copy of the records.

model          input and result: shard tables, the statement for each of them (pure)
dry_run        applies the statement to one shard table after the other
lock_outlook   for which shard tables a parked one waits, by the rule of the master's lock (pure)
risks          what the change may do to data, as sentences (pure)
"""
