"""List schedulers: ops by priority in, one schedule out, in milliseconds."""
