"""One connection after the handshake: reading and writing, budgets, and silence."""
