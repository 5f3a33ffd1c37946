"""The HTTP server of the live page: gevent's own, in the hub that starts it.

`GET /` is the page, without data. `GET /events` is a stream of changes (server-sent events), which the page reads
with `fetch`, because only that can send the token in a header. `POST /break` ends a transaction.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from http.client import HTTPException
from importlib import resources
from typing import Any, NamedTuple

import gevent
from gevent.pool import Pool
from gevent.pywsgi import WSGIHandler, WSGIServer

from locks.errors import InvalidOption, LocksError, MisuseError
from locks.facts.gather import break_transaction
from locks.web.changes import NOTHING, changes, parts
from locks.web.lookout import Lookout
from locks.web.picture import Picture
from locks.web.rules import Rules, refusal

__all__ = [
    "SHARED",
    "Assets",
    "Environ",
    "Page",
    "StartResponse",
    "answer",
    "json_body",
    "send",
    "serve",
]

Environ = dict[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]
logger = logging.getLogger("locks.web")

MOST_STREAMS = 32
MOST_CONNECTIONS = 128
LONGEST_BODY = 4096  # bytes
SILENCE = 30.0  # seconds that a browser may take to read or send
SIGN = 5.0  # seconds between signs of life of a stream
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
]
SHARED = ("colors.css", "dom.js")  # by all pages
KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
JSON = "application/json"


class _Encoded(NamedTuple):
    """The encoded changes between two pictures, as last sent."""

    old: Picture
    new: Picture
    parts: tuple[str, ...]


class _Handler(WSGIHandler):
    """Closes a connection that reads nothing for a while, or takes too long for a request, without logging it."""

    ignored_socket_errors: Any = (*WSGIHandler.ignored_socket_errors, "timed out")

    def __init__(self, sock: Any, address: Any, server: Any) -> None:
        sock.settimeout(SILENCE)
        super().__init__(sock, address, server)

    def read_requestline(self) -> str:
        with _limit():
            line: str = super().read_requestline()
        return line

    def read_request(self, raw_requestline: str) -> Any:
        try:
            with _limit():
                return super().read_request(raw_requestline)
        except (OSError, HTTPException) as error:
            raise ValueError(f"the request is incomplete or too long: {error}") from None

    def handle_one_response(self) -> None:
        # Only a stream may last long, and its request has no body.
        has_body = self.content_length or self.headers.get("Transfer-Encoding")
        with _limit() if has_body else nullcontext():
            super().handle_one_response()

    def log_error(self, msg: str, *args: object) -> None:
        logger.debug(msg, *args)  # requests of unknown clients are not interesting


def _limit() -> gevent.Timeout:
    """A time limit for waiting on a browser; a limit per byte would allow it to take for ever."""
    return gevent.Timeout(SILENCE, TimeoutError("timed out"))


class Assets:
    """The files of a page, and those that all pages share.

    Args:
        package: The package that has them, in `assets`.
        first: The name of the page, which is at `/`.
        more: The names of the others.

    Attributes:
        paths: The content of each, by its path.
    """

    def __init__(self, package: str, first: str, *more: str) -> None:
        own, shared = (resources.files(each) / "assets" for each in (package, "locks.web"))
        self._kinds = {"/": KINDS["html"]}
        self.paths = {"/": (own / first).read_bytes()}
        for folder, names in ((own, more), (shared, SHARED)):
            for name in names:
                self.paths[f"/{name}"] = (folder / name).read_bytes()
                self._kinds[f"/{name}"] = KINDS[name.rpartition(".")[2]]

    def send(self, path: str, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request for one of them."""
        kind = f"{self._kinds[path]}; charset=utf-8"
        return send(start_response, "200 OK", kind, self.paths[path])


class Page:
    """The page, as an application of WSGI.

    Args:
        lookout: The source of pictures.
        rules: Which requests are answered.
    """

    def __init__(self, lookout: Lookout, rules: Rules) -> None:
        self._lookout = lookout
        self._rules = rules
        self._assets = Assets("locks.web", "page.html", "page.css", "page.js")
        self._encoded: _Encoded | None = None

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        refused = refusal(
            self._rules,
            host=environ.get("HTTP_HOST", ""),
            site=environ.get("HTTP_SEC_FETCH_SITE", ""),
            token=environ.get("HTTP_X_LOCKS_TOKEN", ""),
            secret=path not in self._assets.paths,
        )
        if refused is not None:
            return answer(start_response, refused.status, {"error": refused.why})
        if path in self._assets.paths and method == "GET":
            return self._assets.send(path, start_response)
        if path == "/events" and method == "GET":
            return self._events(start_response)
        if path == "/break" and method == "POST":
            return self._break(environ, start_response)
        status = (
            "405 Method Not Allowed"
            if path in (*self._assets.paths, "/events", "/break")
            else "404 Not Found"
        )
        return answer(start_response, status, {"error": f"there is no {method} {path[:100]}"})

    # --- The stream ---------------------------------------------------------------------------

    def _events(self, start_response: StartResponse) -> Iterable[bytes]:
        if self._lookout.watchers >= MOST_STREAMS:
            why = f"too many open pages; {MOST_STREAMS} are allowed"
            return answer(start_response, "503 Service Unavailable", {"error": why})
        # Proxies that buffer responses would delay events (nginx knows this header).
        more = [("Content-Type", "text/event-stream"), ("X-Accel-Buffering", "no")]
        start_response("200 OK", [*HEADERS, *more])
        return self._stream()

    def _stream(self) -> Iterator[bytes]:
        shown = NOTHING
        number = 0
        with self._lookout.watched():
            yield b": hello\n\n"
            while True:
                seen = self._lookout.after(number, SIGN)
                if seen is None:
                    yield b": still here\n\n"
                    continue
                texts = self._texts(shown, seen.picture)
                for index, text in enumerate(texts, 1):
                    head = {
                        "at": seen.at,
                        "pause": self._lookout.pause,
                        "may_break": self._rules.may_break,
                        "first": number == 0 and index == 1,
                        "last": index == len(texts),
                    }
                    yield f"data: {json.dumps(head)[:-1]}, {text[1:]}\n\n".encode()
                shown, number = seen.picture, seen.number

    def _texts(self, old: Picture, new: Picture) -> tuple[str, ...]:
        """The changes as texts, cached, because most pages have the same two pictures."""
        known = self._encoded
        if known is None or known.old is not old or known.new is not new:
            texts = []
            for part in parts(changes(old, new)):
                texts.append(json.dumps(part._asdict()))
                gevent.sleep(0)  # serves others in between
            self._encoded = known = _Encoded(old, new, tuple(texts))
        return known.parts

    # --- The end of a transaction ---------------------------------------------------------------

    def _break(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if not self._rules.may_break:
            why = "this page can't end transactions; start it with --allow-break for that"
            return answer(start_response, "403 Forbidden", {"error": why})
        try:
            agent, reason = _wanted(environ)
        except ValueError as error:
            return answer(start_response, "400 Bad Request", {"error": str(error)})
        seen = self._lookout.newest
        known = None if seen is None else seen.agents.get(agent)
        if known is None:
            why = "that transaction has ended, or holds and requests no lock"
            return answer(start_response, "404 Not Found", {"error": why})
        by = f"a user of the live page at {environ.get('REMOTE_ADDR', '')[:60]}"
        try:
            break_transaction(known, reason=reason, by=by)
        except LocksError as error:
            wrong = isinstance(error, MisuseError)
            status = "400 Bad Request" if wrong else "502 Bad Gateway"
            return answer(start_response, status, {"error": str(error)})
        return answer(start_response, "200 OK", {"broken": str(known)})


def _wanted(environ: Environ) -> tuple[str, str]:
    """The transaction to end, and the reason.

    Raises:
        ValueError: The request is wrong.
    """
    body = json_body(environ, LONGEST_BODY)
    agent, reason = body.get("agent"), body.get("reason")
    if not isinstance(agent, str) or not isinstance(reason, str) or not reason.strip():
        raise ValueError("the request must name the agent and the reason")
    return agent, reason


def json_body(environ: Environ, longest: int) -> dict[str, Any]:
    """The JSON object that a request has.

    Args:
        environ: The request.
        longest: The most bytes that are read.

    Raises:
        ValueError: The request is wrong.
    """
    if environ.get("CONTENT_TYPE", "").partition(";")[0].strip() != JSON:
        raise ValueError(f"the request's body must be {JSON}")
    length = environ.get("CONTENT_LENGTH") or "0"
    if not length.isdigit() or not 0 < int(length) <= longest:
        raise ValueError(f"the request's body must have 1 to {longest} bytes")
    try:
        body = json.loads(environ["wsgi.input"].read(int(length)))
    except RecursionError:
        raise ValueError("the request's JSON is nested too deep") from None
    if not isinstance(body, dict):
        raise ValueError("the request must be a JSON object")
    return body


def answer(start_response: StartResponse, status: str, value: Any) -> Iterable[bytes]:
    """Answer a request with JSON."""
    return send(start_response, status, JSON, json.dumps(value).encode())


def send(start_response: StartResponse, status: str, kind: str, body: bytes) -> Iterable[bytes]:
    """Answer a request."""
    start_response(status, [*HEADERS, ("Content-Type", kind), ("Content-Length", str(len(body)))])
    return [body]


def serve(host: str, port: int, page: Application) -> WSGIServer:
    """Start to serve the page, in greenlets of this thread.

    Raises:
        InvalidOption: The address can't be used.
    """
    server = WSGIServer(
        (host, port),
        page,
        spawn=Pool(MOST_CONNECTIONS),
        handler_class=_Handler,
        log=None,
        error_log=logger,
    )
    try:
        server.start()
    except OSError as error:
        raise InvalidOption(
            f"can't listen at {host}:{port}: {error}; use another port, or 0 for a free one"
        ) from None
    return server
