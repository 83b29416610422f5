"""Connections to servers that use the MySQL protocol: sessions, logins, TLS, error numbers, table structures."""
