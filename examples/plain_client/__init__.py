"""A client for lock servers that does not import `locks`."""
