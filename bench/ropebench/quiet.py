"""Keep other libraries' progress bars and advice out of our output, by their own switches."""

from __future__ import annotations

import logging as standard
import os


def quiet() -> None:
    """Call it before anything imports tqdm, which reads its switch once. A switch that a person has set stays."""
    os.environ.setdefault("TQDM_DISABLE", "1")  # bars that transformers draws past its own switch
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from transformers.utils import logging

    standard.getLogger("huggingface_hub").setLevel(standard.ERROR)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
