"""A headless Chromium, driven through ChromeDriver's HTTP interface (W3C WebDriver): no package is needed for it."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

CHROMIUM, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars"
).split()
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One session of a browser with a profile of its own."""

    def __init__(self, profile: Path, width: int = 1400, height: int = 1000) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._process = subprocess.Popen([DRIVER, f"--port={port}", "--log-level=SEVERE"], stdout=subprocess.DEVNULL)
        self._base = f"http://127.0.0.1:{port}"
        flags = [*_FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"]
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": CHROMIUM, "args": flags},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        try:
            self._wait_for_driver()
            session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self._process.kill()
            raise
        self._base += f"/session/{session['sessionId']}"

    def close(self) -> None:
        """End the session and the driver."""
        try:
            self._call("DELETE", "", None)
        finally:
            self._process.terminate()
            self._process.wait(timeout=20)

    def open(self, url: str) -> None:
        """Open a page and wait until it says that it can be used."""
        self._call("POST", "/url", {"url": url})
        limit = time.monotonic() + 60
        while self.run("return document.documentElement.dataset.ready ?? null") is None:
            assert time.monotonic() < limit, self.console()
            time.sleep(0.02)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript in the page and return what it returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def keys(self, selector: str, text: str) -> None:
        """Type into an element, which gets the focus."""
        element = self._call("POST", "/element", {"using": "css selector", "value": selector})[_ELEMENT]
        self._call("POST", f"/element/{element}/value", {"text": text})
        self.settle()

    def click(self, selector: str) -> None:
        """Click on the middle of an element."""
        element = self._call("POST", "/element", {"using": "css selector", "value": selector})[_ELEMENT]
        self._call("POST", f"/element/{element}/click", {})
        self.settle()

    def drag(self, selector: str, begin: tuple[int, int], end: tuple[int, int] | None = None) -> None:
        """Point at a place of an element (from its top left), press, and let go there or at another place."""
        script = (
            "const e = document.querySelector(arguments[0]); e.scrollIntoView(); const r = e.getBoundingClientRect();"
        )
        left, top = self.run(f"{script} return [Math.ceil(r.left), Math.ceil(r.top)]", selector)
        path = [begin, end or begin]
        moves = [{"type": "pointerMove", "x": left + x, "y": top + y, "duration": 50} for x, y in path]
        press, release = ({"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp"))
        steps = [moves[0], press, moves[1], release, moves[1]]
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": steps}
        self._call("POST", "/actions", {"actions": [mouse]})
        self.settle()

    def settle(self) -> None:
        """Wait until the page has drawn what was asked for."""
        script = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done(null)))"
        self._call("POST", "/execute/async", {"script": script, "args": []})

    def console(self) -> list[str]:
        """Return the warnings and errors since the last call."""
        entries = self._call("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]

    def protocol(self, command: str, **parameters: Any) -> Any:
        """Send a command of the DevTools protocol."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def picture(self, path: Path) -> None:
        """Write what is seen as PNG."""
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot", None)))

    def _wait_for_driver(self) -> None:
        """Wait until the driver answers."""
        limit = time.monotonic() + 30
        while True:
            try:
                self._call("GET", "/status", None)
                return
            except (URLError, ConnectionError):
                assert time.monotonic() < limit, "chromedriver does not answer"
                time.sleep(0.05)

    def _call(self, method: str, path: str, body: Any) -> Any:
        """Make a request and return its value."""
        content = None if body is None else json.dumps(body).encode()
        request = Request(self._base + path, content, {"Content-Type": "application/json"}, method=method)
        with urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]
