"""The files of dm-master and dm-worker."""
