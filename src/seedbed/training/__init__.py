"""Training of packs: yields events and writes nothing to disk."""
