"""Files on disk and local sockets: durable writes, stamps, the state directory."""
