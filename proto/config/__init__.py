"""Configuration files: YAML with positions, and the models of task, source, master and worker files."""
