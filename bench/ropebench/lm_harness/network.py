"""How long lm-eval's own code may wait for the network, and whether it may ask it at all.

Its task files fetch what they like (nltk's sentence splitter, essays, data sets), some of them with no time limit:
where a firewall swallows packets, a plan would hang.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import datasets
import huggingface_hub.constants

PATIENCE = 10.0  # seconds for a connection or a piece of an answer, where the asking code names none


@contextmanager
def network(offline: bool) -> Iterator[None]:
    """Within it no socket waits for longer than `PATIENCE`; with `offline` none is connected to another machine, and
    the hub's clients take what they have stored."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(PATIENCE)
    try:
        if not offline:
            yield
            return
        with (
            patch.object(socket, "getaddrinfo", _refused),
            patch.object(huggingface_hub.constants, "HF_HUB_OFFLINE", True),
            patch.object(datasets.config, "HF_HUB_OFFLINE", True),
            patch.object(datasets.config, "HF_DATASETS_OFFLINE", True),
        ):
            yield
    finally:
        socket.setdefaulttimeout(before)


def _refused(*_: Any, **__: Any) -> Any:
    raise OSError("--offline: no other machine is asked")
