"""The cookie and certificates are changed while servers and programs run, by the commands of `docs/production.md`."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from locks.errors import InvalidOption
from locks.metrics.collecting import Metrics
from tests.cluster.conftest import Certify
from tests.cluster.harness import COOKIE, ROOT, World
from tests.cluster.nodes import A, B, Nodes, peer, until_connected, until_members
from tests.cluster.servers import LIMIT, NAMES, Servers, running
from tests.cluster.servers import locks as command
from tests.cluster.test_rolling_restart import PROGRAM, standing
from tests.helpers import eventually

PAGE = ROOT / "docs" / "production.md"
HOSTS = dict(zip(NAMES, ("10.0.0.1", "10.0.0.2", "10.0.0.3"), strict=True))
IN_FORCE = "new ones are in force"
MACHINES = {
    "scp": 'to="${2#root@}"; exec cp "$1" "machines/${to%%:*}/$(basename "${to#*:}")"',
    "ssh": '[ "$2 $3 $4" = "systemctl reload locks" ] && exec kill -HUP "$(cat "machines/${1#root@}/pid")"',
}


class Machines(Servers):
    """Lock servers on machines of their own: a folder each, with its cookie. Its `scp` and `ssh` lead to them."""

    def folder(self, name: str) -> Path:
        """The machine's `/etc/locks`."""
        folder = self.world.folder / "machines" / HOSTS[name]
        if not folder.exists():
            folder.mkdir(parents=True)
            shutil.copy(self.world.cookie_file, folder / "cookie")
        return folder

    def options(self, name: str) -> list[str]:
        """Each has its own file."""
        return [f"--cookie-file={self.folder(name) / 'cookie'}", "--log-level=locks.nodes=INFO"]

    def sh(self, line: str) -> None:
        """Run a command of the page in the operator's folder."""
        tools = self.world.folder / "tools"
        tools.mkdir(exist_ok=True)
        for tool, script in MACHINES.items():
            (tools / tool).write_text(f"#!/bin/sh\n{script}\n")
            (tools / tool).chmod(0o755)
        for name, server in zip(NAMES, self.processes, strict=True):
            (self.folder(name) / "pid").write_text(str(server.process.pid))
        environment = {**self.environment(), "PATH": f"{tools}:/usr/local/bin:/usr/bin:/bin"}
        subprocess.run(
            ["sh", "-ec", line], cwd=self.world.folder, env=environment, check=True, timeout=LIMIT
        )

    def until_said(self, text: str, times: int) -> None:
        """Wait until each server has logged something so many times."""
        for server in self.processes:
            eventually(lambda server=server: server.errors().count(text) >= times, limit=LIMIT)


def commands_of_the_page() -> list[str]:
    """The commands that change the cookie."""
    section = PAGE.read_text("utf-8").partition("## Change the cookie")[2].partition("\n## ")[0]
    return re.findall(r"^\$ (.+)$", section, re.M)


@pytest.fixture
def machines() -> Iterator[Machines]:
    """Three lock servers."""
    with World() as world:
        yield Machines(world)


def change_the_cookie(machines: Machines, programs: int) -> None:
    """By the page, while programs hold locks; then all servers are restarted, one at a time."""
    world = machines.world
    make, both, new = commands_of_the_page()
    old = world.folder / "old"
    with running(
        machines,
        *[
            PROGRAM.format(number=3, holds=True).replace("contended", f"p{n}")
            for n in range(programs)
        ],
    ) as holders:
        shutil.copy(world.cookie_file, old)
        machines.sh(make)
        machines.sh(both)
        machines.until_said(IN_FORCE, 1)
        assert command(machines, "status", "--cookie-file", str(old)).status == 0
        shutil.copy(world.folder / "both", world.cookie_file)  # the one of programs
        machines.sh(new)
        machines.until_said(IN_FORCE, 2)
        for index, name in enumerate(NAMES):
            machines.restart(index)
            eventually(lambda: standing(machines) == 9 * programs, limit=LIMIT)
            assert "Traceback" not in machines.processes[index].errors(), name
        for program in holders:
            out, _ = program.communicate("over\n", timeout=LIMIT)
            assert out == "0\n", "no lock was lost"
    world.cookie_file.write_text(old.read_text())


@pytest.mark.slow
def test_the_cookie_is_changed_in_three_commands(machines: Machines) -> None:
    """No lock is lost, not by programs that were started with the old one; then the new one counts alone."""
    change_the_cookie(machines, 2)


BAD: list[tuple[str | None, int, str]] = [
    (None, 0o600, "No such file"),
    ("", 0o600, "1 to 9 cookies, not 0"),
    (f"{COOKIE}\nshort\n", 0o600, "only 5 characters"),
    (f"{COOKIE}-new\n", 0o644, "other users can read it"),
]


@pytest.mark.slow
def test_a_bad_file_changes_nothing(machines: Machines) -> None:
    """It is an error in the log with the file and the cause; the old cookie stays in force, and the server runs."""
    name, server = NAMES[0], machines.processes[0]
    file = machines.folder(name) / "cookie"
    for number, (content, mode, why) in enumerate(BAD, 1):
        file.unlink(missing_ok=True)
        if content is not None:
            file.touch()
            file.chmod(mode)
            file.write_text(content)
        server.signal(signal.SIGHUP)
        failed = f"ERROR locks.nodes {name} can't read its files again, and stays as it was"
        eventually(lambda: server.errors().count(failed) == number)  # noqa: B023
        said = server.errors().splitlines()[-1]
        assert str(file) in said
        assert why in said
    assert command(machines, "status", "--with", name).status == 0


def test_what_needs_a_restart_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a changed configuration, the log names what does not count yet; what the command line says is left out."""
    with World() as world:
        settings = world.folder / "locks.toml"
        monkeypatch.setenv("LOCKS_CONFIG", str(settings))
        settings.write_text("net_ticktime = 9\nlog_waits_longer_than = 5\n")
        server = world.server(A, arguments=["--log-level=locks.nodes=INFO"])
        assert server.address
        settings.write_text("net_ticktime = 8\nlog_waits_longer_than = 6\n")
        server.signal(signal.SIGHUP)
        eventually(lambda: "has read its files again, nothing is new: 1 cookie" in server.errors())
        said = f"{A} was started with another log_waits_longer_than than {settings} has now; restart it"
        assert said in server.errors()
        assert "another net_ticktime" not in server.errors()


def test_certificates_are_read_again(nodes: Nodes, certify: Certify) -> None:
    """New connections use the new certificate, and the metric follows; connections that stand stay; a bad file changes nothing."""
    tls = certify("ours", "127.0.0.1")
    a, b = nodes.meet(A, B, tls=tls)
    assert a.cluster is not None
    network = a.cluster.network
    link, expires = network.links[B], network.keys.expires
    assert expires is not None
    key = Path(tls.key).read_bytes()
    Path(tls.key).write_text("no key")
    with pytest.raises(InvalidOption, match=re.escape(f"{tls.certificate} and {tls.key}")):
        network.read_keys()
    Path(tls.key).write_bytes(key)
    assert not network.read_keys()
    assert certify("ours", "127.0.0.1", days=900) == tls, "the same files"
    assert network.read_keys()
    assert network.links[B] is link
    assert network.keys.expires is not None
    assert network.keys.expires > expires + 86400
    samples = {name: value for name, _, value in Metrics(False, lambda: a)._samples(a)}
    assert samples["locks_certificate_expires_seconds"] == network.keys.expires
    a.disconnect(B)
    a.connect(peer(b))
    until_members(a, B)


NEW, OLD = "a-new-cookie-of-the-tests", COOKIE


@pytest.mark.parametrize(
    ("ours", "theirs", "meet"),
    [
        ([NEW, OLD], [OLD], True),
        ([OLD], [NEW, OLD], True),
        ([NEW, OLD], [OLD, NEW], True),
        ([NEW, OLD], [NEW], True),
        ([NEW], [OLD], False),
    ],
)
def test_which_cookies_meet(nodes: Nodes, ours: list[str], theirs: list[str], meet: bool) -> None:
    """Two nodes connect if they know a common cookie, whichever of them connects; else both say why not."""
    b = nodes.start(B, cookie=theirs, mesh=False)
    a = nodes.start(A, cookie=ours, mesh=False, peers=[peer(b)])
    if meet:
        until_connected(a, B)
    else:
        eventually(
            lambda: "has another cookie; all nodes need the same one" in a.refusals.get(B, "")
        )


def test_a_program_reads_its_file_again(nodes: Nodes, tmp_path: Path) -> None:
    """When a server refuses its cookie; a bad file is an error in the log, and is read again at the next refusal."""
    file = tmp_path / "cookie"
    file.touch(0o600)
    file.write_text(OLD)
    b = nodes.start(B, cookie=NEW, mesh=False)
    a = nodes.start(A, cookie=file, mesh=False, peers=[peer(b)])
    eventually(lambda: "has another cookie" in a.refusals.get(B, ""))
    file.write_text("bad cookie")
    eventually(lambda: "has another cookie" in a.refusals.get(B, ""))
    assert not a.nodes()
    file.write_text(f"{NEW}\n\n")
    until_connected(a, B)
