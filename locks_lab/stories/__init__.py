"""What happened in a world, in sentences and pictures."""
