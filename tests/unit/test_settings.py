"""What is said of a node in the environment and in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from locks import TLS
from locks.errors import InvalidOption
from locks.net.secrets import Cookie, Cookies, open_to_others
from locks.program.reloading import need_restart
from locks.program.settings import SETTINGS, Setting, arguments, read_settings

ONE, NEW = "the-first-secret-of-all", "a-newer-secret-of-all"
FILE = """
servers = ["a@h:1", "b@h:2"]
require = "all"
net_ticktime = 3

[tls]
certificate = "own.pem"
key = "own.key"
ca = "ca.pem"
"""


def test_a_file(tmp_path: Path) -> None:
    """Its names are those of `start`; paths are from where it is."""
    (tmp_path / "locks.toml").write_text(FILE)
    found = arguments(read_settings({}, tmp_path))
    tls = TLS(*(str(tmp_path / name) for name in ("own.pem", "own.key", "ca.pem")))
    assert found == {"servers": ["a@h:1", "b@h:2"], "require": "all", "net_ticktime": 3, "tls": tls}


def test_the_environment_comes_before_the_file(tmp_path: Path) -> None:
    """For each setting alone."""
    path = tmp_path / "other.toml"
    path.write_text(FILE)
    said = {
        "LOCKS_CONFIG": str(path),
        "LOCKS_SERVERS": "c@h:3 d@h:4,e@h:5",
        "LOCKS_ALLOW_PLAINTEXT": "yes",
    }
    found = arguments(read_settings(said, tmp_path / "nowhere"))
    assert found["servers"] == ["c@h:3", "d@h:4", "e@h:5"]
    assert found["require"] == "all"
    assert found["allow_plaintext"] is True


def test_a_cookie_is_read_and_not_shown(tmp_path: Path) -> None:
    """Nobody else may be able to read its file."""
    path = tmp_path / "cookie"
    path.touch(0o600)
    path.write_text("a secret of 16 or more\n".replace(" ", "-"))
    found = arguments(read_settings({"LOCKS_COOKIE_FILE": str(path)}, tmp_path))
    assert Cookies.read(found["cookie"]).each[0] == Cookie("a-secret-of-16-or-more")
    assert "secret" not in repr(found)
    path.chmod(0o644)
    with pytest.raises(InvalidOption, match="chmod 600"):
        arguments(read_settings({"LOCKS_COOKIE_FILE": str(path)}, tmp_path))


@pytest.mark.parametrize(
    ("mode", "owner", "refused"),
    [
        (0o600, 1000, False),
        (0o640, 1000, True),
        (0o440, 0, False),  # a secret that Kubernetes mounts, or a credential of systemd
        (0o460, 0, True),
        (0o444, 0, True),
    ],
)
def test_whose_cookie_may_be_read_by_a_group(mode: int, owner: int, refused: bool) -> None:
    """Root's alone; never by all, and nobody else may write it."""
    assert open_to_others(mode, owner) == refused


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("server = []", "unknown setting 'server' in .*; the settings are name, servers"),
        ("servers = 3", "servers in .*locks.toml is 3, but must be a list"),
        ('servers = ["a@h:1", 2]', "must be a list"),
        ("servers = []", "servers in .*locks.toml is \\[\\], but must be a list"),
        ("net_ticktime = true", "must be a number"),
        ("net_ticktime = false", "must be a number"),
        ("tls = 3", "tls must be a table"),
        ("[tls]\ncertificate = 'x'", "missing: key and ca"),
        ("servers = [", "can't read"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, error: str) -> None:
    """With what is wrong, and what could be there."""
    (tmp_path / "locks.toml").write_text(text)
    with pytest.raises(InvalidOption, match=error):
        arguments(read_settings({}, tmp_path))


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    """Otherwise the program would run with defaults that nobody wanted."""
    with pytest.raises(InvalidOption, match="can't read"):
        read_settings({"LOCKS_CONFIG": str(tmp_path / "gone.toml")}, tmp_path)


@pytest.mark.parametrize("text", [",", " ", ", ,", "\n"])
@pytest.mark.parametrize("name", ["LOCKS_SERVERS", "LOCKS_PEERS"])
def test_a_list_of_nothing_is_refused(tmp_path: Path, name: str, text: str) -> None:
    """Such as `$A,$B`, when these are not set: the program would go on alone. A variable without text is not set."""
    with pytest.raises(InvalidOption, match=f"{name} is .*, but must be a list"):
        read_settings({name: text}, tmp_path)
    assert read_settings({name: ""}, tmp_path) == {}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("LOCKS_SERVER", "LOCKS_SERVERS"),
        ("LOCKS_SERVRES", "LOCKS_SERVERS"),
        ("LOCKS_REQUIRED", "LOCKS_REQUIRE"),
        ("LOCKS_COOKIEFILE", "LOCKS_COOKIE_FILE"),
        ("LOCKS_CONFIGS", "LOCKS_CONFIG"),
        ("LOCKS_TLS_CERTFICATE", "LOCKS_TLS_CERTIFICATE"),
    ],
)
def test_a_mistyped_variable_is_refused(tmp_path: Path, name: str, meant: str) -> None:
    """Nobody would read it, and the program would go on with locks of its own."""
    with pytest.raises(InvalidOption, match=f"unknown setting {name}; did you mean {meant}"):
        read_settings({name: "x"}, tmp_path)


def test_what_counts_only_after_a_restart() -> None:
    """All but the cookie and the files of TLS; TLS can't be turned on or off either."""
    before = {name: Setting(name, "here") for name in SETTINGS}
    now = {name: Setting(f"{name}2", "here") for name in SETTINGS}
    read_again = {"cookie_file", *(name for name in SETTINGS if name.startswith("tls_"))}
    assert set(need_restart(now, before)) == SETTINGS.keys() - read_again
    assert need_restart(before, before) == []
    without = {name: before[name] for name in before if name != "tls_ca"}
    assert need_restart(without, before) == need_restart(before, without) == ["tls_ca"]


@pytest.mark.parametrize(
    ("lines", "known"),
    [
        (f"{ONE}\n", [ONE]),
        (f"{NEW}\n\n{ONE}", [NEW, ONE]),
        (f" {NEW} \r\n {ONE}\n", [NEW, ONE]),
    ],
)
def test_a_file_has_a_cookie_in_each_line(tmp_path: Path, lines: str, known: list[str]) -> None:
    """White space around it, and empty lines, do not count; the first one is the node's own."""
    path = tmp_path / "cookie"
    path.touch(0o600)
    path.write_bytes(lines.encode())
    found = Cookies.read(Cookie(path))
    assert found.each == Cookies.read(Cookie(known)).each
    path.write_text("\n".join(reversed(known)) + "\none-more-cookie-of-all")
    again = Cookies.read(found.given)
    assert again.each != found.each
    assert len(again.each) == len(known) + 1
    path.write_text("\n".join(f"{each:016}" for each in range(10)))
    with pytest.raises(InvalidOption, match="1 to 9 cookies, not 10"):
        Cookies.read(found.given)
