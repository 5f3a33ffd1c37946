"""A lock server reads its files again while it runs: cookies and certificates count from then on, the rest needs a restart."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from locks.errors import InvalidOption
from locks.node.node import Node
from locks.program.settings import SETTINGS, Setting, arguments, read_settings

__all__ = ["Reloading", "need_restart"]

logger = logging.getLogger("locks.nodes")

TLS_FILES = ("tls_certificate", "tls_key", "tls_ca")
READ_AGAIN = ("cookie_file", *TLS_FILES, "tls_check_hostname")


def need_restart(now: Mapping[str, Setting], before: Mapping[str, Setting]) -> list[str]:
    """The settings that have changed, and count only after a restart.

    Args:
        now: The settings.
        before: Those with which the node was started.
    """
    turned = {name for name in TLS_FILES if (name in now) != (name in before)}  # TLS on or off
    return [
        name
        for name in SETTINGS
        if (name not in READ_AGAIN or name in turned) and _value(now, name) != _value(before, name)
    ]


def _value(settings: Mapping[str, Setting], name: str) -> object:
    setting = settings.get(name)
    return None if setting is None else setting.value


class Reloading:
    """Reads the settings of a lock server again, and the files that they name.

    Args:
        before: The settings with which the server is started.
        given: The names of settings that do not count, because the command line has others.
    """

    def __init__(self, before: Mapping[str, Setting], given: Collection[str]) -> None:
        self._given = given
        self._before = self._counting(before)

    def read_again(self, node: Node) -> None:
        """Read them, and log what has come of it; if a file is wrong, all stays as it was."""
        assert node.cluster is not None
        network = node.cluster.network
        try:
            now = self._counting(read_settings())
            fixed = need_restart(now, self._before)
            values = arguments(now)
            tls = None if network.keys.tls is None else values.get("tls")
            changed = network.read_keys(values.get("cookie"), tls)
        except InvalidOption as error:
            logger.error("%s can't read its files again, and stays as it was: %s", node.name, error)
            return
        for name in fixed:
            text = "%s was started with another %s than %s has now; restart it to use that one"
            setting = now.get(name) or self._before[name]
            logger.warning(text, node.name, name, setting.source)
        news = "new ones are in force" if changed else "nothing is new"
        logger.info("%s has read its files again, %s: %s", node.name, news, network.keys)

    def _counting(self, settings: Mapping[str, Setting]) -> dict[str, Setting]:
        return {name: each for name, each in settings.items() if name not in self._given}
