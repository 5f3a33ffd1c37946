"""The pages with which users begin: what they show is run, in the order in which they show it."""

from __future__ import annotations

import ast
import http.client
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from tests.cluster.doors import blocks_of, plain_environment, play, serving
from tests.cluster.servers import LIMIT
from tests.helpers import ROOT, eventually, free_port, needs
from tests.repo.test_docs import blocks
from tests.warm import run_program

MACHINES = [f"127.0.0.{number}" for number in (1, 2, 3)]


@pytest.mark.slow
def test_jobs(tmp_path: Path) -> None:
    """A job of one machine, by the command and in Python; three servers with TLS; the same program there; a restart."""
    pytest.importorskip("cryptography", reason="pip install cryptography")
    alone = plain_environment(XDG_RUNTIME_DIR=str(tmp_path))
    commands, program = blocks_of("jobs.md", "## Ten lines that run")
    play(commands, tmp_path, alone)
    (tmp_path / "job.py").write_text(program.body)
    job = commands._replace(
        language="console", body="$ python job.py\nimporting\nonce a second, on one machine\n"
    )
    again = job._replace(body=job.body.replace("importing", "it was done before"))
    local = {**alone, "LOCKS_SERVERS": "local"}
    play(job, tmp_path, local)
    play(again, tmp_path, local)

    port = free_port()
    prepare, server, look = blocks_of("jobs.md", "## Three servers, with TLS")
    (restart,) = blocks_of("jobs.md", "## Restart, one server at a time")
    play(prepare, tmp_path, alone, port)
    made = tmp_path / "certificates"
    with ExitStack() as stack:
        for machine in MACHINES:
            own = server._replace(body=server.body.replace("10.0.0.1", machine))
            stack.enter_context(serving(own, made / machine, alone, port))
        programs = made / "programs"

        def all_know() -> bool:
            try:
                play(look, programs, alone, port)
            except AssertionError:
                return False
            return True

        eventually(all_know)
        play(look, programs, alone, port)
        (programs / "job.py").write_text(program.body)
        play(job, programs, alone, port)
        play(again, programs, alone, port)
        play(restart, programs, alone, port)


@pytest.mark.slow
def test_web(tmp_path: Path) -> None:
    """The application with three workers: one report for each user, a transfer that runs again, a client that has gone; its tests."""
    needs("fastapi", "uvicorn")
    environment = plain_environment(XDG_RUNTIME_DIR=str(tmp_path))
    text = (ROOT / "docs" / "web.md").read_text("utf-8")
    code, tests = text.split("\n## Tests\n")
    own = [each for each in blocks(code) if each.language == "python" and not each.not_run]
    assert not any("flask" in each.body for each in own), "generated ones are of other programs"
    (tmp_path / "shop.py").write_text("\n\n".join(each.body for each in own))
    (serve,) = (each for each in blocks(code) if "uvicorn --workers 3 shop:app" in each.body)
    port = free_port()
    environment["UVICORN_PORT"] = str(port)

    def post(path: str, timeout: float = LIMIT) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        with closing(connection):
            connection.request("POST", path)
            return connection.getresponse().status

    with (
        serving(serve, tmp_path, environment, port, ready="startup complete"),
        ThreadPoolExecutor() as pool,
    ):
        eventually(lambda: (tmp_path / "log").read_text().count("startup complete") == 3)
        for _ in range(4):  # each would have the lock for a second, and its client has gone
            with suppress(TimeoutError):
                post("/slow/ann", timeout=0.3)
        assert post("/slow/ann") == 200
        found = [pool.submit(post, "/reports/ann") for _ in range(6)]
        assert sorted({each.result() for each in found}) == [200, 429]
        found = [pool.submit(post, f"/transfers/{pair}") for pair in ("ann/bob", "bob/ann") * 6]
        assert {each.result() for each in found} == {200}
        found = [pool.submit(post, "/slow/bob") for _ in range(6)]
        assert sorted({each.result() for each in found}) == [200, 503]

    pytest.importorskip("httpx", reason="pip install httpx")
    fixture, *of_shop = (each.body for each in blocks(tests) if each.language == "python")
    (tmp_path / "conftest.py").write_text(fixture)
    leaks = "\n\nimport locks\n\ndef test_that_leaks():\n    locks.Lock(('left',)).acquire()\n"
    (tmp_path / "test_shop.py").write_text("\n\n".join(of_shop) + leaks)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py"]
    done = run_program(command, cwd=tmp_path, env=environment)
    assert "101 passed, 1 error" in done.stdout.replace("102 passed", "101 passed"), done.stdout
    assert "locks were left: [('MainThread', ('left',))]" in done.stdout
    done = run_program([*command, "--locks-seed=0", "-k", "money"], cwd=tmp_path, env=environment)
    assert "1 passed" in done.stdout


def programs(page: str, folder: Path, ports: dict[str, int], **names: str) -> None:
    """Save programs of a page, each by a word that it alone has, with ports that are free."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    for name, word in names.items():
        (body,) = (
            each.body for each in blocks(text) if each.language == "python" and word in each.body
        )
        for port, free in ports.items():
            body = body.replace(port, str(free))
        (folder / f"{name}.py").write_text(body)


@pytest.mark.slow
def test_actors_on_other_nodes(tmp_path: Path) -> None:
    """One is called, and its end is told; three nodes have state, which survives the end of any of them."""
    ports = {port: free_port() for port in ("9101", "9102", "9103", "9104")}
    programs(
        "actors.md", tmp_path, ports, host="node.register", desk="node.remote", settings="SERVERS"
    )
    environment = plain_environment(PYTHONUNBUFFERED="1")
    (cookie,) = (
        each for each in blocks_of("actors.md", "## Actors on other nodes") if each.language == "sh"
    )
    play(cookie._replace(body=cookie.body.splitlines()[0]), tmp_path, environment)

    def run(*command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *command], cwd=tmp_path, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def says(program: subprocess.Popen[str]) -> str:
        assert program.stdout is not None
        return program.stdout.readline().strip()

    with run("host.py") as host:
        assert says(host) == "ready"
        with run("desk.py") as desk:
            assert says(desk) == "90"
            host.kill()
            assert says(desk) == "noconnection"

    nodes = [run("settings.py", f"{name}@127.0.0.1") for name in "abc"]
    try:
        wanted: dict[str, str] = {}
        for each, (key, value) in zip(nodes, (("colour", "blue"), ("size", "7")), strict=False):
            wanted[key] = value
            assert each.stdin is not None
            said = "again, please"
            while said == "again, please":
                print(key, value, file=each.stdin, flush=True)
                said = says(each)
            assert ast.literal_eval(said) == wanted
            nodes[0].kill()
    finally:
        for each in nodes:
            each.kill()
            each.communicate(timeout=LIMIT)
