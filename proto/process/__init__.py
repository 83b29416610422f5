"""What concerns the process of a daemon as a whole: its end (``termination``) and its threads (``periodic``)."""
