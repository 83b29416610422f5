"""Locks of sharding DDLs.

records turns the records in etcd into a situation, resolver decides the next step from it, report describes the lock to
operators. All of it is pure; master/leader/ddl_lock_loop.py calls it.
"""
