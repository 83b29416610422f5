"""Records of the copy of the history that the streams need: passed watermarks and interrupted copies."""
