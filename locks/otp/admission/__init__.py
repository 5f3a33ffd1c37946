"""Which nodes may connect: the handshake, cookies, certificates, and strangers at the door."""
