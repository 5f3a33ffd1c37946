"""Other nodes: greetings, agreement on servers, relays."""
