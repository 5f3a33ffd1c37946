"""Names that have moved."""
