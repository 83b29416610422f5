"""Transforms in Python: functions of users' modules over Arrow arrays, called in the process that reads the rows.

allowed_modules holds the modules that the worker's file allows. functions imports a function, results checks what it
returned. analysis prepares a table's transform in the driver, transformer computes rows in a lane or chunk reader.
"""
