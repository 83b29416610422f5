"""The worker process: start and end, etcd, gRPC services."""
