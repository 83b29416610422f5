"""What only the leading master does.

election elects it; loop calls the leader's work after each change of the records: scheduler places sources on workers,
ddl_lock_loop moves the locks of sharding DDLs.
"""
