"""Ctrl-C and SIGTERM in a run: once, the sample under way is finished and stored; Ctrl-C again ends it now."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_SAID = b"\nropebench: stopping when the sample under way is finished and stored; Ctrl-C again stops now\n"


@dataclass
class Stop:
    """Whether the person, or the machine's scheduler, has asked for the end."""

    asked: bool = False

    def check(self) -> None:
        """Raise KeyboardInterrupt where the end was asked for; to be called between samples."""
        if self.asked:
            raise KeyboardInterrupt

    def signalled(self, number: int, frame: FrameType | None) -> None:
        """The handler. A second SIGTERM changes nothing: schedulers send it to a process more than once."""
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.asked:
            os.write(2, _SAID)  # not sys.stderr, in the middle of whose own writing a signal may come
        self.asked = True


@contextmanager
def stopping() -> Iterator[Stop]:
    """Catch both signals while the body runs. Elsewhere than in the main thread, where Python allows no handlers,
    nothing is caught."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop.signalled) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
