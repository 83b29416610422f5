"""`dmctl history` for a terminal, as a timeline; pure. ``period`` reads --since, ``chart`` draws lag and rate,
``timeline`` is the whole answer."""
