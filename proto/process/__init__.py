"""What concerns the process of a daemon as a whole: its end (``termination``), and its threads: what they repeat
(``periodic``), and what fails in them (``rounds``)."""
