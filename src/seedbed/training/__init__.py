"""Training: yields events, writes nothing."""
