"""The contract between dmctl, master, worker and lanes: messages, errors, configuration files."""

if __name__ != "shardmerge.proto":  # two names would be two copies of every class
    raise ImportError("import shardmerge.proto, not proto")
