"""Fixtures for tests with several nodes.

A test runs in a fresh native thread without a hub, whatever other tests have done in the main one: so
each node that it starts has a thread and a hub of its own, as in most programs.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import gevent
import pykka
import pytest
from gevent._hub_local import get_hub_if_exists

import locks
from locks.actors import LockServer  # only when it is loaded, it is the class of lock servers
from tests.cluster.harness import World
from tests.cluster.nodes import Nodes
from tests.cluster.servers import Servers

Certify = Callable[..., locks.TLS]
_Thread = gevent.monkey.get_original("threading", "Thread")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Run a test in a thread of its own."""
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    errors: list[BaseException] = []

    def body() -> None:
        try:
            pyfuncitem.obj(**arguments)
        except BaseException as error:
            errors.append(error)
        finally:
            if "nodes" in arguments:
                arguments["nodes"].stop()
            for actor in pykka.ActorRegistry.get_all():
                if actor.actor_class is not LockServer:  # a node that several tests use goes on
                    actor.stop(block=False)
            hub = get_hub_if_exists()  # a GeventActor of the test lives there
            if hub is not None:
                gevent.sleep(0)
                hub.destroy(destroy_loop=True)

    thread = _Thread(target=body, name="test", daemon=True)
    thread.start()
    thread.join(600)
    assert not thread.is_alive(), "the test hangs"
    if errors:
        raise errors[0]
    return True


@pytest.fixture
def nodes() -> Nodes:
    """Nodes in this process, ended at the end of the test, in its thread."""
    return Nodes()


@pytest.fixture
def world() -> Iterator[World]:
    """Nodes that are processes, ended at the end."""
    with World() as made:
        yield made


@pytest.fixture
def servers(world: World) -> Servers:
    """Three lock servers of this test alone."""
    return Servers(world)


@pytest.fixture(scope="session")
def processes() -> Iterator[Servers]:
    """Three lock servers for all tests that harm none. Silence alone ends no connection with them."""
    with World() as world:
        yield Servers(world, net_ticktime=60)


@pytest.fixture(scope="session")
def certify(tmp_path_factory: pytest.TempPathFactory) -> Certify:
    """Make certificates: `certify(ca, host)` is what a node with a certificate of that CA needs."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: object) -> None:
        subprocess.run(
            ["openssl", *map(str, arguments)], cwd=folder, check=True, capture_output=True
        )

    def authority(name: str) -> Path:
        certificate = folder / f"{name}.pem"
        if not certificate.exists():
            openssl(
                "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-keyout", f"{name}.key", "-out", certificate, "-subj", f"/CN={name}",
                "-addext", "basicConstraints=critical,CA:TRUE",
            )  # fmt: skip
        return certificate

    def make(ca: str, host: str, trusts: str | None = None, days: int = 30) -> locks.TLS:
        signer, stem = authority(ca), f"{ca}-{host}"
        # OTP looks for an address among the names.
        name = f"IP:{host},DNS:{host}" if host[0].isdigit() else f"DNS:{host}"
        (folder / f"{stem}.ext").write_text(f"subjectAltName={name}\n")
        openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", f"{stem}.key", "-out", f"{stem}.csr", "-subj", f"/CN={host}",
        )  # fmt: skip
        openssl(
            "x509", "-req", "-in", f"{stem}.csr", "-CA", signer, "-CAkey", f"{ca}.key",
            "-CAcreateserial", "-out", f"{stem}.pem", "-extfile", f"{stem}.ext", "-days", days,
        )  # fmt: skip
        return locks.TLS(folder / f"{stem}.pem", folder / f"{stem}.key", authority(trusts or ca))

    return make
