"""Secrets in configuration files.

key_file finds the key, variables resolves references to environment variables, sealed encrypts the secrets in a file's
typed form. Those in its text: ../stored_text.py.
"""
