"""The command line of a node: `python -m locks node`.

It runs a lock server for agents of other nodes. When it is ready, it prints one line of JSON with its
name and address. It ends on SIGTERM and on Ctrl-C, and then closes its connections, so that the other nodes
notice immediately. With --drain it first lets programs finish on SIGTERM; a second SIGTERM ends it at once.
On SIGHUP it reads its cookie and its certificates again, for new connections.

Other settings come from the environment or from locks.toml: LOCKS_LIMITS (what each program may have here), LOCKS_NET_TICKTIME,
LOCKS_LOG_WAITS_LONGER_THAN, LOCKS_ALLOW_PLAINTEXT.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from locks.cli.joining import add_credentials, add_servers, servers_in
from locks.cli.printing import say
from locks.cli.web import page_served
from locks.errors import InvalidOption, LocksError
from locks.metrics.serving import checked_address, serve
from locks.model import check_own_name
from locks.program.default import start, stop
from locks.program.draining import drain
from locks.program.local import HERE_WORD, LocalServer
from locks.program.meeting import TLS, parse_servers
from locks.program.reloading import Reloading
from locks.program.server_log import FORMATS, parse_levels, start_logging
from locks.program.serving import open_many_files, settle
from locks.program.settings import SETTINGS, read_settings
from locks.runtime.logs import audit_event, is_audited
from locks.runtime.waiter import Event

__all__ = ["add_command"]

ANY_PORT = "127.0.0.1:0"
EXAMPLES = """\
  python -m locks node --name a@127.0.0.1 --listen 127.0.0.1:9100 --cookie-file cookie
  python -m locks node --name b@127.0.0.1 --servers a@127.0.0.1:9100,b@127.0.0.1:9101 --cookie-file cookie
"""


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser("node", help=about, description=__doc__, epilog=EXAMPLES)
    parser.add_argument("--name", help="its name: name@host (default: $LOCKS_NAME)")
    add_servers(
        parser,
        "name@host:port of all servers that programs share, including this one, comma-separated",
    )
    add_credentials(parser)
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="where to listen; port 0 takes a free one (default: the address in --servers, or a free port on "
        "loopback)",
    )
    parser.add_argument(
        "--no-mesh",
        action="store_true",
        help="connect only to the servers and peers that are set, and announce no other nodes",
    )
    parser.add_argument(
        "--state",
        type=Path,
        metavar="FILE",
        help="keep what is done once (locks run --once) in this file, so that it survives the end of all servers",
    )
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="serve Prometheus metrics at this address, such as 127.0.0.1:9464; needs pip install 'pykka-locks[metrics]'",
    )
    parser.add_argument(
        "--drain",
        type=float,
        default=0,
        metavar="SECONDS",
        help="on SIGTERM, take nothing new, and end when no program holds or waits for a lock here, or after SECONDS "
        "(default: 0, at once)",
    )
    parser.add_argument(
        "--log-level",
        action="append",
        default=[],
        metavar="[LOGGER=]LEVEL",
        help="what is logged, from DEBUG to CRITICAL, of all loggers or of one, such as locks.nodes=INFO; may be "
        "repeated (default: WARNING)",
    )
    parser.add_argument(
        "--log-format",
        choices=FORMATS,
        default="text",
        help="how a line of the log looks (default: text)",
    )
    parser.add_argument(
        "--web",
        metavar="HOST:PORT",
        help="serve the live page at this address (see `locks web`); it is read-only",
    )
    parser.set_defaults(run=_run)


def _refuse(word: str) -> InvalidOption:
    """The error for a word in the place of a list of servers, none of which is for a lock server."""
    if word == HERE_WORD:
        return InvalidOption(
            'servers = "here" is for programs with private locks, not for a lock server, which other '
            "programs share: list all servers as name@host:port, or list none here and all of them in the programs"
        )
    LocalServer.of(word)  # an error for any other word
    return InvalidOption(
        f'servers = "{word}" needs no `locks node`: the first program that needs the lock server of a machine starts it, '
        "and it ends by itself"
    )


def _given(options: argparse.Namespace) -> set[str]:
    """The settings that the command line has."""
    given = {name for name in SETTINGS if getattr(options, name, None) is not None}
    if options.tls:
        given |= {name for name in SETTINGS if name.startswith("tls_")}
    return given


def _run(options: argparse.Namespace) -> int:
    open_many_files()
    try:
        if not 0 <= options.drain < math.inf:
            raise InvalidOption(f"--drain {options.drain:g} is not a number of seconds from 0 on")
        levels = parse_levels(options.log_level)
    except InvalidOption as error:
        say("locks node", error)
        return 2
    start_logging(FORMATS[options.log_format])
    for logger, level in levels.items():
        logging.getLogger(logger).setLevel(level)
    ended, at_once = Event(), Event()

    def end(number: int, _: object) -> None:
        if number == signal.SIGINT or ended.is_open:
            at_once.open()
        ended.open()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    hung_up: list[int] = []
    signal.signal(signal.SIGHUP, lambda number, _: hung_up.append(number))
    try:
        settings = read_settings()
        said = {name: setting.value for name, setting in settings.items()}
        name = options.name or said.get("name")
        if name is None or not (options.cookie_file or "cookie_file" in said):
            missing = "name: pass --name" if name is None else "cookie: pass --cookie-file"
            raise InvalidOption(f"the lock server has no {missing}")
        check_own_name(name)
        reloading = Reloading(settings, _given(options))
        servers = servers_in(options) or said.get("servers")
        if isinstance(servers, str):
            raise _refuse(servers)
        if servers and name not in parse_servers(servers):
            raise InvalidOption(
                f"this node, {name}, is not one of the servers {', '.join(servers)}: a lock server must be in "
                "its own list of servers"
            )
        listen = options.listen or said.get("listen") or (None if servers else ANY_PORT)
        metrics = options.metrics and checked_address(
            options.metrics, bool(said.get("allow_plaintext"))
        )
        node = start(
            name,
            cookie=options.cookie_file,
            listen=listen,
            servers=servers,
            copies=options.copies,
            tls=TLS(*options.tls) if options.tls else None,
            mesh=False if options.no_mesh else None,
            state=options.state,
        )
        told: dict[str, str | int] = {"metrics": serve(*metrics)} if metrics else {}
    except LocksError as error:
        say("locks node", error)
        stop()
        return 2
    settle()
    audit_event("started", "%s was started", node.name, node=node.name)
    assert node.address is not None  # it listens: otherwise it would be a client
    host, port = node.address
    told = {"name": node.name, "host": host, "port": port, **told}
    if listen == ANY_PORT and not (options.listen or "listen" in said):
        print(
            f"locks node: {node.name} listens at {host}:{port}, a free port that is another one at the next start; choose one with "
            f"--listen {host}:{port}",
            file=sys.stderr,
        )
    try:
        with ExitStack() as stack:
            if options.web:
                told["web"] = stack.enter_context(page_served(options.web))
            print(json.dumps(told), flush=True)
            while not ended.wait(timeout=1) and node.running:
                if hung_up:
                    hung_up.clear()
                    reloading.read_again(node)
            if options.drain:
                drain(node, options.drain, at_once)
            crashed = not node.running
    except InvalidOption as error:
        say("locks node", error)
        return 2
    finally:
        if is_audited() and node.running and node.server.audit is not None:
            node.executor.call(node.server.audit.look)
        audit_event("stopped", "%s is about to end", node.name, node=node.name)
        stop()
    return 1 if crashed else 0
