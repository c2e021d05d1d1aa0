"""Everything that knows about devices: flags, strategy, training, inference."""
