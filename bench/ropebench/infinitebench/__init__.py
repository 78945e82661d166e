"""InfiniteBench (arXiv:2402.13718): what its 12 subsets share. The tasks are `tasks/infinitebench.py` (the published
rows) and `tasks/infinitebench_generated.py` (the synthetic subsets, made at any length).

Prompts, new-token budgets and the official scorer are OpenBMB/InfiniteBench's at commit 88b3daa (MIT); reading,
truncation, the lenient scorer and the generators are our own.
"""

SUBSETS = (
    "passkey",
    "number_string",
    "kv_retrieval",
    "longbook_sum_eng",
    "longbook_qa_eng",
    "longbook_choice_eng",
    "longdialogue_qa_eng",
    "longbook_qa_chn",
    "code_debug",
    "code_run",
    "math_calc",
    "math_find",
)

__all__ = ["SUBSETS"]
