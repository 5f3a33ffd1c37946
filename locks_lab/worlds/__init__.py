"""Worlds of lock servers, agents and clients, under a schedule that is chosen from outside."""
