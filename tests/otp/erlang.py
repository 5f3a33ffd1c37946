"""A real Erlang for the tests: one that evaluates what it is sent, and nodes with an epmd of their own.

Everything listens on loopback only, at free ports, and is ended by its own process id.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from locks.otp.bytes.etf import decode, encode
from locks.otp.bytes.terms import Atom
from tests.helpers import eventually, free_port

MISSING = "no Erlang here: these tests need `erl` and `epmd` on PATH (Debian: erlang-base)"
ERLANG = shutil.which("erl") is not None and shutil.which("epmd") is not None

# Calls functions: frames of four bytes of length on standard input and output.
SERVER = """
    Port = open_port({fd, 0, 1}, [{packet, 4}, binary, eof]),
    Loop = fun Loop() ->
        receive
            {Port, {data, Request}} ->
                Answer = try
                    {Module, Function, Arguments} = binary_to_term(Request),
                    {ok, apply(Module, Function, Arguments)}
                catch
                    _:Reason -> {error, iolist_to_binary(io_lib:format("~0p", [Reason]))}
                end,
                port_command(Port, term_to_binary(Answer)),
                Loop();
            {Port, eof} -> halt()
        end
    end,
    Loop().
"""


class Erlang:
    """An Erlang that is no node. It calls functions for the tests."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["erl", "-noinput", "-boot", "start_clean", "-eval", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def call(self, module: str, function: str, *arguments: Any) -> Any:
        """Call a function of Erlang's with terms, and return what it returns."""
        request = encode((Atom(module), Atom(function), list(arguments)))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(len(request).to_bytes(4, "big") + request)
        self._process.stdin.flush()
        size = int.from_bytes(self._process.stdout.read(4), "big")
        outcome, result = decode(self._process.stdout.read(size))
        assert outcome == Atom("ok"), result
        return result

    def evaluate(self, expression: str) -> Any:
        """Evaluate an expression that is written in Erlang."""
        _, tokens, _ = self.call("erl_scan", "string", [ord(letter) for letter in expression + "."])
        _, expressions = self.call("erl_parse", "parse_exprs", tokens)
        return self.call("erl_eval", "exprs", expressions, [])[1]

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


# --- Nodes --------------------------------------------------------------------------------------

COOKIE = "cookie-of-the-tests"

# Does what it is told by messages of the form {Pid, What}, and answers with {What, Result}.
NODE = """
    register(tests, self()),
    io:put_chars("ready\\n"),
    Loop = fun Loop() ->
        receive
            {Pid, {call, Module, Function, Arguments}} ->
                Pid ! {Function, catch apply(Module, Function, Arguments)};
            {Pid, echo, Term} ->
                Pid ! {echo, Term, self()};
            Other ->
                erlang:display(Other)
        end,
        Loop()
    end,
    Loop().
"""


@contextmanager
def running(command: list[str], **environment: str) -> Iterator[IO[bytes]]:
    """A process that is ended at the end; yields its standard output."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.kill()
        process.communicate()


@contextmanager
def port_mapper() -> Iterator[int]:
    """An epmd on a port of its own; yields the port."""
    port = free_port()
    with running(["epmd", "-address", "127.0.0.1", "-port", str(port)]):
        eventually(lambda: answers(port))
        yield port


def answers(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as sock:
        sock.settimeout(1)
        return sock.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def erlang_node(name: str, mapper: int) -> Iterator[None]:
    """A node of OTP; its process `tests` is there, and does what it is told."""
    command = ["erl", "-noinput", "-name", name, "-setcookie", COOKIE, "-start_epmd", "false"]
    loopback = ["-kernel", "inet_dist_use_interface", "{127,0,0,1}"]
    with running([*command, *loopback, "-eval", NODE], ERL_EPMD_PORT=str(mapper)) as output:
        assert output.readline() == b"ready\n"
        yield
