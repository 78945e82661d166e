"""A headless Chromium driven over its own pipe (Chrome DevTools Protocol): no driver, no port, no package."""

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

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def found() -> str | None:
    """The browser's program, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page. `errors` are what the console and the page complained of, `asked` the addresses it fetched."""

    def __init__(self, program: str, seconds: float = 60) -> None:
        self.seconds = seconds  # that one command may take
        self.deadline = time.monotonic() + seconds
        self.errors: list[str] = []
        self.asked: list[str] = []
        self._ids = itertools.count(1)
        self._text = b""
        self._folder = tempfile.mkdtemp(prefix="ropebench-browser-")
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        words = [
            program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
            "--disable-dev-shm-usage", "--disable-background-networking", f"--user-data-dir={self._folder}",
            "--remote-debugging-pipe", "about:blank",
        ]  # fmt: skip
        # Chromium reads commands from descriptor 3 and writes to 4, whatever numbers ours have.
        shell = f'exec 3<&{to_read} 4>&{to_write}; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "browser", *words], pass_fds=(to_read, to_write), stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._session: str | None = None
        targets = self("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")
        self("Emulation.setFocusEmulationEnabled", enabled=True)  # no window system gives the page its focus

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: Any) -> None:
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        os.close(self._read)
        os.close(self._write)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __call__(self, method: str, **params: Any) -> Any:
        """One command; its result. Raises RuntimeError for one that fails, TimeoutError when the time is over."""
        number, self.deadline = next(self._ids), time.monotonic() + self.seconds
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            got = self._message()
            if got.get("id") == number:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']}")
                return got["result"]

    def _message(self) -> Any:
        while b"\0" not in self._text:
            left = self.deadline - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            chunk = os.read(self._read, 1 << 20)
            if not chunk:
                raise RuntimeError("the browser went away")
            self._text += chunk
        line, _, self._text = self._text.partition(b"\0")
        got = json.loads(line)
        self._note(got.get("method"), got.get("params") or {})
        return got

    def _note(self, event: str | None, params: Any) -> None:
        if event == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:500])
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(params["args"])[:500])
        elif event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"][:500])
        elif event == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"][:200])
        elif event == "Page.javascriptDialogOpening":
            self.errors.append(f"dialog: {params['message']}")

    def open(self, file: Path, width: int, height: int, dark: bool = False) -> None:
        """Load a file in a window of this size; below 500 px it is a phone."""
        phone = width < 500
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self("Emulation.setTouchEmulationEnabled", enabled=phone)
        self("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme",
                                                      "value": "dark" if dark else "light"}])  # fmt: skip
        self("Page.navigate", url=file.resolve().as_uri())
        while not self.js("document.readyState === 'complete' && location.protocol === 'file:'"):
            time.sleep(0.05)

    def js(self, code: str) -> Any:
        """The value of an expression in the page."""
        got = self("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise RuntimeError(json.dumps(got["exceptionDetails"])[:800])
        return got["result"].get("value")

    def wait(self, code: str, seconds: float = 5) -> Any:
        """The value of an expression once it is true, or its last one: a tap's click comes a moment later."""
        until = time.monotonic() + seconds
        while not (value := self.js(code)) and time.monotonic() < until:
            time.sleep(0.05)
        return value

    def middle(self, selector: str) -> tuple[float, float]:
        """Where an element is, scrolled into sight."""
        self.js(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        at = self.js(
            f"(({{left, top, width, height}}) => [left + width / 2, top + height / 2])"
            f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        )
        return at[0], at[1]

    def point(self, selector: str) -> None:
        x, y = self.middle(selector)
        self("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        x, y = self.middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def tap(self, selector: str) -> None:
        x, y = self.middle(selector)
        self("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def key(self, name: str) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            code = {"Tab": 9, "Escape": 27, "Enter": 13}[name]
            self("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)

    def picture(self, file: Path, whole: bool = False) -> None:
        """A screenshot, of the window or of the whole page."""
        got = self("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(got["data"]))

    def pdf(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self("Page.printToPDF", printBackground=False)["data"]))
