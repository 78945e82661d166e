"""RULER (arXiv:2404.06654): what its 13 tasks share. The tasks themselves are `tasks/ruler_*.py`.

Prompts, answer prefixes, needle and word settings are NVIDIA/RULER's at commit c3f5e3b (Apache-2.0, Copyright (c) 2024
NVIDIA CORPORATION), byte for byte. The generator is our own: sample i depends on (seed, i) alone, what is asked for is
spread evenly over depth at every length, and a sample is sized by counting ids, BOS, chat template, answer prefix and
answer budget included.
"""

from ropebench.ruler.scoring import length_score, length_summary, string_match_all, string_match_part

TASKS = (
    "niah_single_1",
    "niah_single_2",
    "niah_single_3",
    "niah_multikey_1",
    "niah_multikey_2",
    "niah_multikey_3",
    "niah_multivalue",
    "niah_multiquery",
    "vt",
    "cwe",
    "fwe",
    "qa_1",
    "qa_2",
)

__all__ = ["TASKS", "length_score", "length_summary", "string_match_all", "string_match_part"]
