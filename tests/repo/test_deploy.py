"""What is in `deploy/` is well-formed, hardened, and says what the package says; `tests/cluster/test_manifest.py` runs it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import locks

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "locks.service"
MOST_EXPOSED = 20  # tenths, of 100


def lint(tool: str, *arguments: str | Path, status: int = 0) -> str:
    """Run a linter, or skip where it is not installed."""
    found = shutil.which(tool) or shutil.which(Path(sys.executable).with_name(tool))
    if found is None:
        pytest.skip(f"no {tool} here")
    done = subprocess.run(
        [found, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def manifest() -> Sequence[Any]:
    """The manifest's resources."""
    yaml = pytest.importorskip("yaml")
    found: Sequence[Any] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    return found


def test_containerfile() -> None:
    """hadolint has nothing to say."""
    assert lint("hadolint", DEPLOY / "Containerfile") == ""


def test_hadolint_can_fail(tmp_path: Path) -> None:
    """It finds what is wrong in another one."""
    (tmp_path / "Containerfile").write_text("FROM debian\nRUN cd /tmp && sudo ls\n")
    assert "DL3006" in lint("hadolint", tmp_path / "Containerfile", status=1)


def test_manifest_is_yaml() -> None:
    """yamllint has nothing to say."""
    config = DEPLOY / "yamllint.yaml"
    assert lint("yamllint", "--strict", "-c", config, *DEPLOY.glob("*.yaml")) == ""


def test_manifest_fits_the_schemas() -> None:
    """Each resource is what the newest Kubernetes that the tool knows takes, without a field too many."""
    assert lint("kubernetes-validate", "--strict", DEPLOY / "kubernetes.yaml").count("passed") == 3


def test_schemas_can_fail(tmp_path: Path) -> None:
    """A field that is misspelt is found."""
    text = (DEPLOY / "kubernetes.yaml").read_text()
    (tmp_path / "bad.yaml").write_text(text.replace("readinessProbe", "readynessProbe"))
    assert "readynessProbe" in lint(
        "kubernetes-validate", "--strict", tmp_path / "bad.yaml", status=1
    )


def test_manifest_agrees_with_itself() -> None:
    """As many pods as servers, one of which may go; one name of service, port and label; no root, nothing to write to."""
    service, budget, pods = manifest()
    spec = pods["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    env = {each["name"]: each.get("value", "") for each in container["env"]}
    servers = env["LOCKS_SERVERS"].split()
    assert len(servers) == pods["spec"]["replicas"]
    assert (
        pods["spec"]["replicas"] - budget["spec"]["maxUnavailable"] > pods["spec"]["replicas"] / 2
    )
    name, (port,) = service["metadata"]["name"], service["spec"]["ports"]
    assert name == pods["spec"]["serviceName"]
    for number, server in enumerate(servers):
        own = env["LOCKS_SELF"].replace("$(POD_NAME)", f"{pods['metadata']['name']}-{number}")
        assert server == f"{own}:{port['port']}"
        assert f".{name}." in own
    labels = pods["spec"]["template"]["metadata"]["labels"]
    assert labels == service["spec"]["selector"] == budget["spec"]["selector"]["matchLabels"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["image"].endswith(f":{locks.__version__}")


def test_unit(tmp_path: Path) -> None:
    """systemd knows each setting, and finds the service little exposed."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/locks/bin/locks", sys.executable))
    assert lint("systemd-analyze", "verify", unit) == ""
    lint("systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED}", unit)


def test_unit_that_is_exposed(tmp_path: Path) -> None:
    """Without what hardens it, it would not pass."""
    unit = tmp_path / UNIT.name
    lines = UNIT.read_text().splitlines()
    kept = [line for line in lines if not re.match("Protect|Private|Restrict|System|Cap|Dyn", line)]
    unit.write_text("\n".join(kept))
    options = ("--offline=true", f"--threshold={MOST_EXPOSED}")
    lint("systemd-analyze", "security", *options, unit, status=1)


def test_requirements_are_those_of_the_constraints() -> None:
    """The container has the versions that the tests have, each with a hash, and all that the package needs."""
    constraints = (ROOT / "constraints.txt").read_text().lower()
    text = (DEPLOY / "requirements.txt").read_text()
    pinned = re.findall(r"^([\w-]+)==([\w.]+)[^\n]*\\\n    --hash=sha256:", text, re.M)
    assert {"pykka", "gevent", "greenlet", "prometheus-client"} <= {n for n, _ in pinned}
    for name, version in pinned:
        assert re.search(
            rf"^{name.replace('-', '[-_.]')}=={re.escape(version)}\b", constraints, re.M
        )
