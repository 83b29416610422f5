"""dmctl: the command line, a thin gRPC client of the master."""
