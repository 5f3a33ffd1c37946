"""Worlds of lock servers, agents and clients; the caller chooses the schedule."""
