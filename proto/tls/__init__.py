"""TLS between the processes: both sides show a certificate, and each looks at the other's.

``files``: what is read; ``process``: what this process shows and trusts; ``diagnose``: why a connection fails.
"""
