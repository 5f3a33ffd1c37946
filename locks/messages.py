"""The messages of lock servers and agents, for programs that talk to them as to any Pykka actor.

Most programs never do: the functions of `locks` send them. What a program sends is checked field by field, and
refused to it if it is wrong (`locks.core.checked`).
"""

from locks.core.messages import (
    AgentMessage,
    Inquire,
    Knowledge,
    RaiseVersion,
    Refused,
    Relay,
    Release,
    Released,
    Remove,
    Request,
    RequestStates,
    Resolved,
    ServerMessage,
    StandingElsewhere,
    Surrender,
    Surrendered,
    Undelivered,
    Unwatch,
    VersionRaised,
    Watch,
)

__all__ = [
    "AgentMessage",
    "Inquire",
    "Knowledge",
    "RaiseVersion",
    "Refused",
    "Relay",
    "Release",
    "Released",
    "Remove",
    "Request",
    "RequestStates",
    "Resolved",
    "ServerMessage",
    "StandingElsewhere",
    "Surrender",
    "Surrendered",
    "Undelivered",
    "Unwatch",
    "VersionRaised",
    "Watch",
]
