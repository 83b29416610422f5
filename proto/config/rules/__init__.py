"""The rules of a task file: patterns, filters, routes, mappings, transforms."""
