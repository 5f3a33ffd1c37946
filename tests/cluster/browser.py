"""A real browser without a window: Chromium, driven over its DevTools protocol through two pipes.

A pipe needs no port, no client of web sockets and no driver of the browser's very version: each message is JSON with a
zero byte at its end.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.helpers import LIMIT

__all__ = ["NAMES", "NO_BROWSER", "Browser", "find_browser"]

NAMES = ("chromium", "chromium-browser", "google-chrome")
NO_BROWSER = f"no browser is installed: none of {', '.join(NAMES)} is on the path"


def find_browser() -> str | None:
    """Where the browser is, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A browser with one page. What it says of errors in the page is kept.

    Args:
        path: Its program.
        width: Of the page, in pixels.
        height: Of the page.
        dark: Whether the page is to be dark.

    Attributes:
        errors: What went wrong in the page: exceptions, and what its policy has kept out.
    """

    def __init__(self, path: str, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        self.errors: list[str] = []
        self._numbers = itertools.count(1)
        self._rest = b""
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
            theirs_in, self._out = os.pipe()
            self._in, theirs_out = os.pipe()
            stack.callback(os.close, self._in)
            stack.callback(os.close, self._out)
            flags = (
                *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                *("--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe"),
            )
            # The browser reads from 3 and writes to 4.
            pipes = f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$@"'
            self._process = subprocess.Popen(
                [
                    "bash",
                    "-c",
                    pipes,
                    "-",
                    path,
                    *flags,
                    f"--user-data-dir={folder}",
                    "about:blank",
                ],
                pass_fds=(theirs_in, theirs_out),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            os.close(theirs_in)
            os.close(theirs_out)
            stack.callback(self._end)
            self._session: str | None = None
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self.call(f"{domain}.enable")
            self.look(width, height, dark)
            self._stack = stack.pop_all()

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol; return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        while True:
            answer = self._receive(time.monotonic() + LIMIT)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._in, 1 << 20)
            assert data, "the browser has ended"
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        about = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(about["exceptionDetails"])[:1000])
        if message.get("method") == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.errors.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")
        return message

    def look(self, width: int, height: int, dark: bool = False, scale: float = 1) -> None:
        """Give the page a size, and its user a wish for dark pages or light ones."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )
        wish = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[wish])

    def open(self, address: str) -> None:
        """Open a page, and forget the errors of the one before."""
        self.call("Page.navigate", url="about:blank")
        self.errors.clear()
        assert "errorText" not in self.call("Page.navigate", url=address)

    def run(self, code: str) -> Any:
        """The value of an expression in the page; of a promise, what it is kept with."""
        said = self.call(
            "Runtime.evaluate",
            expression=code,
            returnByValue=True,
            awaitPromise=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in said, f"{code}: {said['exceptionDetails']}"
        return said["result"].get("value")

    def text(self, selector: str) -> str:
        """What one can read in an element; nothing, if it is not there."""
        found = self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        assert isinstance(found, str)
        return found

    def wait(self, code: str, limit: float = LIMIT) -> Any:
        """Wait until an expression is true in the page; return its value."""
        deadline = time.monotonic() + limit
        while not (value := self.run(code)):
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"not within {limit} s: {code}\n{self.errors}\n{self.text('body')}"
                )
            time.sleep(0.02)
        return value

    def wait_for(self, selector: str, text: str) -> None:
        """Wait until an element says something."""
        found = f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"
        self.wait(f"({found}).includes({json.dumps(text)})")

    def press(self, key: str, code: str = "") -> None:
        """Press a key."""
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, **text)
            text = {}

    def save(self, path: Path, selector: str = "body") -> None:
        """Save what one sees as PNG; or an element of it."""
        box = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        names = ("x", "y", "width", "height")
        clip = {name: self.run(f"{box}.{name}") for name in names} | {"scale": 1}
        if selector == "body":
            clip["height"] = self.run("innerHeight")
        said = self.call("Page.captureScreenshot", format="png", clip=clip)
        path.write_bytes(base64.b64decode(said["data"]))
