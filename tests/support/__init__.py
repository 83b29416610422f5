"""Servers, faults and judges that tests share."""
