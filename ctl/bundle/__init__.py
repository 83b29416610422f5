"""`support-bundle`: one file with a redacted picture of the cluster.

``collect`` asks the master. ``cluster_files`` and ``daemon_files`` make files of the answers, ``open_metrics`` those of
metrics, ``contents`` the index; all of them are pure. ``archive`` writes the file.
"""
