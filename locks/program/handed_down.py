"""What a program's node was started with, handed down to the processes that `multiprocessing` starts.

A forked child has its parent's memory. One of `spawn` or `forkserver` has what the parent gives to each of its
children: the configuration of its process object, by which the key for authentication gets there, too. So what is
said by `locks.start` reaches all kinds of children, secrets included, and no other program. It is pickled as plain
bytes: a child that uses no locks does not import them.
"""

from __future__ import annotations

from typing import Any

from locks.errors import MisuseError
from locks.runtime.first_use import loaded

__all__ = ["hand_down", "handed_down"]

KEY = "locks"
PACKAGES = (
    "multiprocessing",
    "multiprocess",
)  # the second is a copy with dill, of pathos and mpire


class _Legacy:
    """What children get. As the key for authentication, it is pickled for them alone."""

    def __init__(self, plan: Any) -> None:
        self._plan = plan

    def __reduce__(self) -> Any:
        import pickle

        contexts = (loaded(f"{package}.context") for package in PACKAGES)
        if not any(each and each.get_spawning_popen() for each in contexts):
            raise TypeError(
                "what a node was started with has secrets in it, and is pickled for a child alone"
            )
        try:
            return bytes, (pickle.dumps((self._plan, None)),)
        except Exception as error:  # whatever objects of users raise
            return bytes, (pickle.dumps((None, f"{type(error).__name__}: {error}")),)


def hand_down(plan: Any) -> None:
    """Give to all children that are started from now on what the node was started with; `None`: nothing."""
    if plan is not None:
        import multiprocessing.process  # noqa: F401
    for config in _configurations():
        config.pop(KEY, None)
        if plan is not None:
            config[KEY] = _Legacy(plan)


def handed_down() -> Any:
    """What the parent's node was started with; `None` if this is no such child, or its parent had none.

    Raises:
        MisuseError: It could not be pickled.
    """
    data = next((found for each in _configurations() if (found := each.get(KEY))), None)
    if not isinstance(data, bytes):
        return None
    import pickle  # not for every program

    plan, wrong = pickle.loads(data)
    if wrong is not None:
        raise MisuseError(
            "this process was started by multiprocessing, and what the node of its parent was started with could not be handed "
            f"down: {wrong}. Call locks.start(...) in this process, too"
        )
    return plan


def _configurations() -> list[dict[str, Any]]:
    """What this process hands down, for each of the packages that it has imported."""
    processes = filter(None, (loaded(f"{package}.process") for package in PACKAGES))
    found = (getattr(each.current_process(), "_config", None) for each in processes)
    return [each for each in found if each is not None]
