"""Secrets in configuration files.

key_file finds the key, variables resolves references to environment variables, stored_text encrypts the secrets in a
file's text, sealed those in its typed form.
"""
