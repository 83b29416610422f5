"""The contract between dmctl, master, worker and lanes: messages, errors, configuration files."""
