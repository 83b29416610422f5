"""What a stream's options, offsets and statements mean. Pure."""
