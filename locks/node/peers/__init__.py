"""Other nodes: greetings, agreement on servers, relays, and clients on other nodes."""
