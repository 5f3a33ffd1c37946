"""The servers of `deploy/kubernetes.yaml`: started with its arguments and its environment, as pods would be.

An address of loopback stands for the name of each pod. No container is built.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from locks.__main__ import main
from tests.cluster.harness import COOKIE, ROOT, Server, World
from tests.helpers import eventually, free_port
from tests.warm import run_program

DOMAIN = "locks.shop.svc.cluster.local"
PROGRAM = """
import locks
with locks.transaction(timeout=30) as tx:
    print(tx.write_lock(("ledger",)) > 0)
"""


class Pod:
    """A pod of the manifest.

    Args:
        number: Which one.
        port: Where servers listen.
        secrets: The folder with the secrets.

    Attributes:
        container: What the manifest says of it.
        env: The environment that the manifest gives it.
    """

    def __init__(self, number: int, port: int, secrets: Path) -> None:
        yaml = pytest.importorskip("yaml")
        (*_, pods) = yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text())
        (self.container,) = pods["spec"]["template"]["spec"]["containers"]
        self.env = {"POD_NAME": f"locks-{number}", "POD_NAMESPACE": "shop"}
        for each in self.container["env"]:
            if "value" in each:
                value = addressed(self.expanded(each["value"]))
                self.env[each["name"]] = value.replace(":9100", f":{port}")
        for mount in self.container["volumeMounts"]:
            for name, value in self.env.items():
                self.env[name] = value.replace(mount["mountPath"], str(secrets / DOMAIN))

    def expanded(self, text: str) -> str:
        """A text with the variables in it, as Kubernetes has it."""
        return re.sub(r"\$\((\w+)\)", lambda found: self.env[found[1]], text)

    def environment(self) -> dict[str, str]:
        """All of its environment."""
        beside = os.path.dirname(sys.executable)
        own = {"PATH": f"{beside}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        return {**os.environ, **self.env, **own}

    def probe(self, kind: str) -> subprocess.CompletedProcess[str]:
        """Run a probe."""
        command = self.container[kind]["exec"]["command"]
        return self.run(*command)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in it."""
        return run_program(command, env=self.environment())


def addressed(text: str) -> str:
    """A text with an address of loopback for each pod's name."""
    return re.sub(
        rf"locks-(\d)\.{re.escape(DOMAIN)}", lambda found: f"127.0.0.{int(found[1]) + 2}", text
    )


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """The secrets of servers, as one folder, and those of programs in another one; made by the command of the page."""
    pytest.importorskip("cryptography", reason="pip install cryptography")
    (command,) = re.findall(
        r"^locks (certificates .*)$", (ROOT / "docs/production.md").read_text(), re.M
    )
    command = command.replace(".default.", ".shop.")
    addresses = ",".join(f"127.0.0.{number + 2}" for number in range(3))
    command = command.replace(f"*.{DOMAIN}", f"*.{DOMAIN},{addresses}")
    assert main([*shlex.split(command), f"--folder={tmp_path}"]) == 0
    for folder in (tmp_path / DOMAIN, tmp_path / "programs"):
        (folder / "cookie").touch(0o600)
        (folder / "cookie").write_text(COOKIE)
    return tmp_path


@pytest.mark.explore
@pytest.mark.skipif(
    not Path(sys.executable).with_name("locks").exists(), reason="`locks` is not installed here"
)
def test_pods_of_the_manifest(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three servers meet, with TLS; the probes are true; a program takes a lock; two are enough."""
    port = free_port()
    with World() as world:
        pods = [Pod(number, port, secrets) for number in range(3)]
        program = Pod(0, port, secrets)  # its environment, with the certificate of programs
        for name, value in program.env.items():
            program.env[name] = value.replace(str(secrets / DOMAIN), str(secrets / "programs"))
        servers: list[Server] = []

        def start(number: int) -> None:
            node, flag, name = map(pods[number].expanded, pods[number].container["args"])
            assert (node, flag) == ("node", "--name")
            with monkeypatch.context() as patch:
                for variable, value in pods[number].env.items():
                    patch.setenv(variable, value)
                servers.append(Server(name, [], 0, {}))
            world.processes.append(servers[-1])

        start(0)
        assert servers[0].address == ("127.0.0.2", port)
        assert pods[0].probe("readinessProbe").returncode != 0, "one server is no majority"
        start(1)
        start(2)
        for server in servers:
            assert server.address
        eventually(lambda: all(map(ready, pods)))
        assert program.run(sys.executable, "-c", PROGRAM).stdout.strip() == "True"
        servers[2].kill()
        told = pods[2].probe("readinessProbe")
        assert told.returncode == 1, told.stdout + told.stderr
        assert "2 of 3 lock servers answer; 2 are needed: locks can be taken." in told.stdout
        assert "locks@127.0.0.4 does not answer" in told.stdout
        assert program.run(sys.executable, "-c", PROGRAM).stdout.strip() == "True"


def ready(pod: Pod) -> bool:
    """Whether a pod's probes say so."""
    said = pod.probe("readinessProbe")
    return bool(said.returncode == 0 and "3 of 3" in said.stdout)
