"""Export and import of all configuration files."""
