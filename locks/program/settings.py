"""Settings of a program's node outside of the program: in the environment, and in a file.

With them, the same program runs alone on a laptop and with servers elsewhere. A setting comes from the first of these
that has it: the arguments of `locks.start`; the environment, `LOCKS_SERVERS` and so on; the file named in
`LOCKS_CONFIG`, or else `locks.toml` in the current folder; the defaults.

The file has the names of `locks.start`'s arguments, except that it names a file instead of the cookie:

    servers = ["a@10.0.0.1:9100", "b@10.0.0.2:9100", "c@10.0.0.3:9100"]
    cookie_file = "cookie"

    [tls]
    certificate = "worker.pem"
    key = "worker.key"
    ca = "ca.pem"
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from locks.errors import InvalidOption
from locks.lock_ids import shown

__all__ = ["FILE", "SETTINGS", "Setting", "arguments", "read_settings"]

FILE = "locks.toml"
NAMES_A_FILE = "LOCKS_CONFIG"
TRUTH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


class Setting(NamedTuple):
    """One setting.

    Attributes:
        value: Its value.
        source: Where it comes from: the name of an environment variable, or of a file.
    """

    value: Any
    source: str


class _Kind(NamedTuple):
    """A kind of value.

    Attributes:
        says: Its description, for errors.
        of_text: Converts the text of a variable; raises `ValueError` or `KeyError`.
        is_good: Whether a value from a file is valid.
    """

    says: str
    of_text: Callable[[str], Any]
    is_good: Callable[[Any], bool]


def _names(text: str) -> list[str]:
    names = text.replace(",", " ").split()
    if not names:
        raise ValueError("an element of the list is empty")
    return names


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_word(text: str) -> bool:
    from locks.program.local import is_word  # most programs have no servers

    return is_word(text)


def _limits(text: str) -> dict[str, int]:
    parts = [each.split("=") for each in _names(text)]
    return {name: int(number) for name, number in parts}


def _servers(text: str) -> Any:
    return text if _is_word(text) else _names(text)


def _are_servers(value: Any) -> bool:
    return _is_word(value) if isinstance(value, str) else _are_names(value) and bool(value)


_TEXT = _Kind("text", str, lambda value: isinstance(value, str))
_LIST = _Kind("a list of name@host:port", _names, _are_names)
_SERVERS = _Kind('a list of name@host:port, or "local", or "here"', _servers, _are_servers)
_NUMBER = _Kind(
    "a number",
    float,
    lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
)
_WHOLE = _Kind("a whole number", int, lambda value: type(value) is int)
_LIMITS = _Kind(
    "limits of each program, such as requests=10000,waits=100",
    _limits,
    lambda value: isinstance(value, dict),
)
_BOOL = _Kind(
    "true or false", lambda text: TRUTH[text.lower()], lambda value: isinstance(value, bool)
)

SETTINGS: dict[str, _Kind] = {
    "name": _TEXT,
    "servers": _SERVERS,
    "require": _TEXT,
    "copies": _WHOLE,
    "cookie_file": _TEXT,
    "listen": _TEXT,
    "peers": _LIST,
    "net_ticktime": _NUMBER,
    "log_waits_longer_than": _NUMBER,
    "limits": _LIMITS,
    "allow_plaintext": _BOOL,
    "tls_certificate": _TEXT,
    "tls_key": _TEXT,
    "tls_ca": _TEXT,
    "tls_check_hostname": _BOOL,
}
"""The settings; the environment variable of each is `LOCKS_` and the name in capitals."""
_PATHS = ("cookie_file", "tls_certificate", "tls_key", "tls_ca")
PREFIX = "LOCKS_"
ALIKE = 0.8  # from 0 to 1: similarity from which an unknown name counts as a mistyped setting


def read_settings(
    environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> dict[str, Setting]:
    """All settings in the environment and in the file, by name.

    Args:
        environment: The environment; that of the process by default.
        folder: Where to look for the file, unless the environment names one; the current folder by default.

    Raises:
        InvalidOption: A setting is wrong.
    """
    environment = os.environ if environment is None else environment
    found: dict[str, Setting] = {}
    _check_names(environment)
    named = environment.get(NAMES_A_FILE)
    path = Path(named) if named else (folder or Path()) / FILE
    if named or path.is_file():
        found |= _read_file(path)
    for name, kind in SETTINGS.items():
        variable = f"{PREFIX}{name.upper()}"
        text = environment.get(variable)
        if text:
            try:
                found[name] = Setting(kind.of_text(text.strip()), variable)
            except (ValueError, KeyError):
                raise _wrong(variable, text, kind) from None
    return found


def _check_names(environment: Mapping[str, str]) -> None:
    """Refuse a variable with a mistyped name; other variables with our prefix may belong to other software."""
    known = [NAMES_A_FILE.removeprefix(PREFIX), *map(str.upper, SETTINGS)]
    for variable in environment:
        name = variable.removeprefix(PREFIX)
        if name == variable or name in known:
            continue
        from difflib import get_close_matches  # not needed by every program

        for meant in get_close_matches(name, known, n=1, cutoff=ALIKE):
            raise InvalidOption(
                f"unknown setting {variable}; did you mean {PREFIX}{meant}? If it is not a setting of locks, give it another "
                "name",
                value=variable,
            )


def _read_file(path: Path) -> dict[str, Setting]:
    if sys.version_info >= (3, 11):
        import tomllib  # many programs have no such file
    else:
        import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidOption(f"can't read {path}: {error}", path=str(path)) from error
    tls = content.pop("tls", {})
    if not isinstance(tls, dict):
        raise InvalidOption(f"{path}: tls must be a table, [tls]", path=str(path))
    content |= {f"tls_{name}": value for name, value in tls.items()}
    found = {}
    for name, value in content.items():
        kind = SETTINGS.get(name)
        if kind is None:
            raise InvalidOption(
                f"unknown setting {name!r} in {path}; the settings are {', '.join(SETTINGS)}",
                path=str(path),
            )
        if not kind.is_good(value):
            raise _wrong(f"{name} in {path}", value, kind)
        if name in _PATHS:
            value = str(path.parent / value)
        found[name] = Setting(value, str(path))
    return found


def _wrong(where: str, value: Any, kind: _Kind) -> InvalidOption:
    return InvalidOption(f"{where} is {shown(value)}, but must be {kind.says}", value=shown(value))


def arguments(settings: Mapping[str, Setting]) -> dict[str, Any]:
    """The settings as arguments of `locks.start`.

    Raises:
        InvalidOption: The cookie can't be read, or a part of TLS is missing.
    """
    if not settings:
        return {}
    from locks.net.secrets import Cookie, read_cookies
    from locks.net.tls import TLS
    from locks.program.local import servers_by_word

    values = {name: setting.value for name, setting in settings.items()}
    tls = {name: values.pop(f"tls_{name}", None) for name in TLS._fields}
    if tls.pop("check_hostname") is False:
        tls["check_hostname"] = False
    if any(each is not None for each in tls.values()):
        missing = [name for name, value in tls.items() if value is None]
        if missing:
            raise InvalidOption(
                f"tls needs a certificate, a key and a ca; missing: {' and '.join(missing)}"
            )
        values["tls"] = TLS(**tls)
    if "cookie_file" in values:
        path = Path(values.pop("cookie_file"))
        read_cookies(path)
        values["cookie"] = Cookie(path)
    servers = values.get("servers")
    if isinstance(servers, str):
        values["servers"] = servers_by_word(servers)
    return values
