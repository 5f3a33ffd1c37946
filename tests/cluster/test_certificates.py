"""`locks certificates`, and the recipes of the pages that use it, with the check of host names."""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from locks.__main__ import main
from tests.cluster.harness import COOKIE, ROOT
from tests.cluster.servers import LIMIT
from tests.helpers import eventually, free_port

x509 = pytest.importorskip("cryptography.x509", reason="pip install cryptography")

HOSTS = [f"127.0.0.{number}" for number in (1, 2, 3)]
LOCKS = f"{shlex.quote(sys.executable)} -m locks"


def make(*arguments: str | Path) -> int:
    """Run the command."""
    return main(["certificates", *map(str, arguments)])


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each machine's folder has what it needs; only the owner can read keys and folders; more are signed by the same authority."""
    folder = tmp_path / "made"
    assert make("--folder", folder, "10.0.0.1,db.example", "--client", "programs") == 0
    assert "a new authority's key" in capsys.readouterr().out
    authority = (folder / "ca.crt").read_bytes()
    assert make("--folder", folder, "*.locks.shop.svc", "--days", "7") == 0
    assert "a new authority's key" not in capsys.readouterr().out
    for name in ("10.0.0.1", "programs", "locks.shop.svc"):
        assert {path.name for path in (folder / name).iterdir()} == {"tls.crt", "tls.key", "ca.crt"}
        assert (folder / name / "ca.crt").read_bytes() == authority
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o700
    for key in folder.rglob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    made = x509.load_pem_x509_certificate((folder / "programs" / "tls.crt").read_bytes())
    uses = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [x509.ExtendedKeyUsageOID.CLIENT_AUTH], "no server can be made of it"
    made = x509.load_pem_x509_certificate((folder / "locks.shop.svc" / "tls.crt").read_bytes())
    assert (made.not_valid_after_utc - made.not_valid_before_utc).days == 7


def test_nothing_is_overwritten_unless_it_is_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What exists is kept, also beside new names; `--renew` makes new keys for the same names by the same authority."""
    assert make("--folder", tmp_path, "10.0.0.1", "b.example,10.0.0.2", "--client", "programs") == 0
    before = contents(tmp_path)
    assert make("--folder", tmp_path, "10.0.0.3", "10.0.0.1") == 2
    assert "10.0.0.1 exists; pass --renew" in capsys.readouterr().err
    assert contents(tmp_path) == before
    assert make("--folder", tmp_path, "--renew") == 0
    assert "b.example: for a server, b.example, 10.0.0.2, until" in capsys.readouterr().out
    after = contents(tmp_path)
    changed = {name for name, content in after.items() if before[name] != content}
    assert {Path(name).name for name in changed} == {"tls.crt", "tls.key"}
    assert len(changed) == 6
    (tmp_path / "ca.key").unlink()
    (tmp_path / "ca.crt").unlink()
    assert make("--folder", tmp_path, "10.0.0.9") == 2, "no second authority beside the first one"
    assert "ca.key" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "no host is named"),
        (["--renew"], "no certificates to renew"),
        (["../up"], "'../up' is not the name or the address of a host"),
        (["a", "b", "a"], "a is named twice"),
        (["*"], "'*' is not the name"),
        (["--client", "*.shop.svc"], "* stands for the first part of a server's name"),
        (["a", "--days", "0"], "--days 0 is not from 1 to 3650"),
    ],
)
def test_wrong_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    """They are refused with a sentence, and nothing is made."""
    assert make("--folder", tmp_path / "made", *arguments) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_without_the_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command says how to install it."""
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert make("--folder", tmp_path, "a") == 3
    assert "pip install 'pykka-locks[certificates]'" in capsys.readouterr().err


# --- Recipes ------------------------------------------------------------------------------------


def commands_of(page: str, after: str, language: str = "sh") -> list[str]:
    """The commands of the blocks after a heading, up to the next heading."""
    text = (ROOT / "docs" / page).read_text().partition(f"\n{after}\n")[2].partition("\n## ")[0]
    blocks = re.findall(rf"```{language}\n(.*?)```", text, re.S)
    assert blocks, f"{page} has no commands after {after}"
    return [block.replace("$ ", "") for block in blocks]


def run(script: str, folder: Path, environment: dict[str, str]) -> str:
    """Run commands of a page; return what they print."""
    done = subprocess.run(
        ["bash", "-euc", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment of a machine without settings, with the package."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    """Ends what a test has started."""
    with ExitStack() as stack:
        yield stack


def start(script: str, folder: Path, environment: dict[str, str], ends: ExitStack) -> None:
    """Start a server by commands of a page; wait until it is ready."""
    server = subprocess.Popen(
        ["bash", "-euc", script], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )
    ends.callback(server.wait, LIMIT)
    ends.callback(server.terminate)
    assert server.stdout is not None
    ends.callback(server.stdout.close)
    assert '"name"' in server.stdout.readline()


@pytest.mark.slow
def test_the_unit_of_systemd_with_tls(
    tmp_path: Path, environment: dict[str, str], ends: ExitStack
) -> None:
    """Three servers with the settings of the unit and the files that it names, made by the command; a program as such."""
    unit = (ROOT / "deploy" / "locks.service").read_text()
    (command,) = re.findall(r"^ExecStart=/opt/locks/bin/locks (.*)$", unit, re.M)
    settings = re.findall(r"(LOCKS_\w+)=/etc/locks/(\S+)", unit)
    assert len(settings) == 4
    assert make("--folder", tmp_path, *HOSTS, "--client", "programs") == 0
    port = free_port()
    environment["LOCKS_SERVERS"] = ",".join(f"locks@{host}:{port}" for host in HOSTS)
    for name in (*HOSTS, "programs"):
        folder = tmp_path / name
        (folder / "cookie").touch(0o600)
        (folder / "cookie").write_text(COOKIE)
        assert all((folder / file).exists() for _, file in settings)
        environment |= {key: str(folder / file) for key, file in settings}
        if name in HOSTS:
            given = {**environment, "LOCKS_NAME": f"locks@{name}"}
            start(f"exec {LOCKS} {command}", folder, given, ends)
    assert "3 of 3 lock servers answer" in run(f"{LOCKS} status", tmp_path, environment)


@pytest.mark.slow
def test_a_refused_program_is_told_both_names(
    tmp_path: Path, environment: dict[str, str], ends: ExitStack
) -> None:
    """A server with another machine's certificate, and a program under a name that its certificate has not: both say what to make."""
    assert make("--folder", tmp_path, *HOSTS[:2], "--client", "programs") == 0
    cookie, port = tmp_path / "cookie", free_port()
    cookie.touch(0o600)
    cookie.write_text(COOKIE)
    environment["LOCKS_SERVERS"] = f"locks@{HOSTS[0]}:{port}"
    files = "--cookie-file ../cookie --tls tls.crt tls.key ca.crt"

    def told(**more: str) -> str:
        done = subprocess.run(
            ["bash", "-c", f"{LOCKS} status {files}"], cwd=tmp_path / "programs",
            env={**environment, **more}, capture_output=True, text=True, timeout=LIMIT,
        )  # fmt: skip
        return done.stderr

    node = f"exec {LOCKS} node --name locks@{HOSTS[0]} {files}"
    lenient = {
        "LOCKS_TLS_CERTIFICATE": "tls.crt",
        "LOCKS_TLS_KEY": "tls.key",
        "LOCKS_TLS_CA": "ca.crt",
        "LOCKS_TLS_CHECK_HOSTNAME": "0",  # otherwise it would not start
    }
    with ExitStack() as first:
        unchecked = node.partition(" --tls")[0]
        start(unchecked, tmp_path / HOSTS[1], environment | lenient, first)
        eventually(
            lambda: f"the node on {HOSTS[0]} has a certificate for {HOSTS[1]}; it needs" in told()
        )
    start(node, tmp_path / HOSTS[0], environment, ends)
    wanted = "the node on web1 has a certificate for programs; it needs one for web1, as `locks certificates web1`"
    eventually(lambda: wanted in told(LOCKS_NAME="program@web1"))
