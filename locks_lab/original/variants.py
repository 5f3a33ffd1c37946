"""The original as it is, and variants of its rules that its README weighs: with what each would cost.

`ORIGINAL` is what the Erlang application does. Each variant differs from it in one point. The README of the
original, in the words of Thomas Arts, who checked the algorithm in 1999, says of several of them that they are
unsafe, or need more messages; `python -m benchmarks.original` measures both. Three more are ours: `reopens`, `keeps`
and `mended`, which is both, take away what goes wrong with plain locks.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from locks.errors import InvalidOption, nearest

__all__ = ["ORIGINAL", "VARIANTS", "Variant", "variant_of"]


class Variant(NamedTuple):
    """Rules of the original, or some that differ.

    Attributes:
        name: Its name on the command line.
        about: What is different, in one line.
        tells: Whom an agent that sees no circle tells what it knows: holders that are larger, or
            smaller; all whom it knows of; those it waits for, of those who wait for it (`"forward"`);
            or those who wait for it, of those it waits for (`"back"`).
        yields: Which agent of a circle yields.
        gives: What it surrenders: the lock for which somebody in the circle waits, to stand last
            (`"last"`), behind the next one (`"swap"`), or behind that one of the circle (`"place"`);
            or all that it has (`"all"`).
        acknowledges: How a surrender and news that cross it are told apart. By its version
            (`"version"`); or it is always carried out, and until an agent is told so, it takes in nothing
            else of that lock (`"heeded"`); or neither of both (`"ignored"`).
        reopens: Whether what is surrendered is awaited again.
        keeps: Whether an agent that sees that another one must yield forgets nothing, and tells what it
            knows as if it had seen nothing.
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
