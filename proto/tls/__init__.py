"""TLS between the processes: both sides show a certificate, and each verifies the other's.

model names the files, files reads and checks them, store holds their current
content, process what this process shows and trusts, diagnose finds out
why a connection fails.
"""
