"""The rules of the original, and variants of them that its README discusses.

`ORIGINAL` is the behaviour of the Erlang application. Each variant differs from it in one point.
The README of the original says of several variants that they are unsafe, or need more messages, in
the words of Thomas Arts, who checked the algorithm in 1999. `python -m benchmarks.original`
measures both. Three more variants are ours: `reopens`, `keeps`, and `mended`, which is both. They
remove the failures with plain locks.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from locks.errors import InvalidOption, nearest

__all__ = ["ORIGINAL", "VARIANTS", "Variant", "variant_of"]


class Variant(NamedTuple):
    """Rules of the original, or some that differ.

    Attributes:
        name: Its name on the command line.
        about: The difference, in one line.
        tells: To whom an agent that sees no circle sends its knowledge: to larger holders, or to
            smaller ones; to all agents that it knows; to those it waits for, about those who wait
            for it (`"forward"`); or to those who wait for it, about those it waits for (`"back"`).
        yields: Which agent of a circle must give way.
        gives: What it surrenders: the lock for which an agent of the circle waits, to stand last
            (`"last"`), behind the next agent (`"swap"`), or behind that agent of the circle
            (`"place"`); or all its locks (`"all"`).
        acknowledges: How a surrender is distinguished from news that cross it: by its version
            (`"version"`); or it is always carried out, and the agent ignores all other news of that
            lock until it is confirmed (`"heeded"`); or not at all (`"ignored"`).
        reopens: Whether the agent waits again for the lock that it surrenders.
        keeps: Whether an agent that sees that another one must give way forgets nothing, and sends
            its knowledge as if it had seen no circle.
    """

    name: str
    about: str
    tells: Literal["larger", "smaller", "everyone", "forward", "back"] = "larger"
    yields: Literal["largest", "smallest"] = "largest"
    gives: Literal["last", "swap", "place", "all"] = "last"
    acknowledges: Literal["version", "heeded", "ignored"] = "version"
    reopens: bool = False
    keeps: bool = False


ORIGINAL = Variant("original", "the Erlang application as it is")

VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        ORIGINAL,
        Variant("swap", "who surrenders swaps with the next in the queue", gives="swap"),
        Variant("place", "who surrenders stands behind the one it yields to", gives="place"),
        Variant("all", "who surrenders gives up all that it has", gives="all"),
        Variant("smallest", "the smallest agent of a circle yields", yields="smallest"),
        Variant(
            "mirror",
            "the smallest agent of a circle yields, and agents tell only smaller ones",
            tells="smaller",
            yields="smallest",
        ),
        Variant("smaller", "agents tell only smaller ones", tells="smaller"),
        Variant("everyone", "agents tell everybody whom they know of", tells="everyone"),
        Variant("forward", "agents tell those they wait for who waits for them", tells="forward"),
        Variant("back", "agents tell those who wait for them whom they wait for", tells="back"),
        Variant(
            "heeded",
            "surrenders name no version, and agents wait for the acknowledgement",
            acknowledges="heeded",
        ),
        Variant(
            "ignored",
            "surrenders name no version, and agents ignore the acknowledgement",
            acknowledges="ignored",
        ),
        Variant("reopens", "who surrenders a lock waits for it again", reopens=True),
        Variant("keeps", "who sees that another one must yield passes it on", keeps=True),
        Variant("mended", "reopens and keeps at once", reopens=True, keeps=True),
    )
}


def variant_of(text: str) -> Variant:
    """A variant from its name, or several at once: `mended+swap`.

    Raises:
        InvalidOption: One of them does not exist.
    """
    found = ORIGINAL._replace(name=text, about=text)
    for name in text.split("+"):
        if name not in VARIANTS:
            raise InvalidOption(
                f"rule {name!r}: of the original there is {', '.join(VARIANTS)}, or several of them, "
                f"such as mended+swap{nearest(name, VARIANTS)}",
                rule=text,
            )
        changes = VARIANTS[name]._asdict()
        different = {k: v for k, v in changes.items() if v != getattr(ORIGINAL, k)}
        found = found._replace(**{**different, "name": text, "about": VARIANTS[name].about})
    return found
