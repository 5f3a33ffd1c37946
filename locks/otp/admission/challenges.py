"""Challenges for handshakes: numbers by which a node must prove that it knows the cookie.

An attacker could answer a repeated challenge with an overheard answer, and a predictable one with
an answer obtained elsewhere. So challenges are a counter, permuted by a Feistel network whose round
function is a keyed hash. A permutation repeats no number, and without the key no number can be
predicted.
"""

from __future__ import annotations

from hashlib import blake2s

from locks.errors import InvalidOption

__all__ = ["Challenges"]

_ROUNDS = 8
_RECENT = 65536  # challenges that `issued` recognises


class Challenges:
    """Numbers of 32 bits that can't be predicted, and do not repeat within 2**32.

    After 2**32 numbers, the sequence begins again.

    Args:
        key: 16 to 32 random bytes, kept secret.

    Raises:
        InvalidOption: The key is not of that kind.
    """

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or not 16 <= len(key) <= 32:
            raise InvalidOption("the key for challenges must be 16 to 32 random bytes")
        self._key = key
        self._count = 0

    def next(self) -> int:
        """Return the next challenge."""
        left, right = self._count >> 16 & 0xFFFF, self._count & 0xFFFF
        self._count += 1
        for number in range(_ROUNDS):
            left, right = right, left ^ self._scramble(number, right)
        return left << 16 | right

    def issued(self, challenge: int) -> bool:
        """Whether a challenge is one of the last 65,536 that `next` has returned."""
        left, right = challenge >> 16 & 0xFFFF, challenge & 0xFFFF
        for number in reversed(range(_ROUNDS)):
            left, right = right ^ self._scramble(number, left), left
        age = (self._count - 1 - (left << 16 | right)) % (1 << 32)
        return age < min(self._count, _RECENT)

    def _scramble(self, number: int, half: int) -> int:
        data = bytes((number, half >> 8, half & 0xFF))
        return int.from_bytes(blake2s(data, digest_size=2, key=self._key).digest(), "big")
