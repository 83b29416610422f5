"""The alert rules with the address of a copy of the documentation: each alert's ``runbook_url`` leads there.

``runbooks`` makes them, and ``__main__`` writes them: ``python -m deploy.prometheus --help``.
"""
