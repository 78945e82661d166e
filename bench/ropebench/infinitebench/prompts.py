"""InfiniteBench's prompts: the literal strings of two of its sets, and how they are filled from a row.

Source: OpenBMB/InfiniteBench, src/prompt.py (`yarn_mistral_templates`, `gpt4_templates`) and src/eval_utils.py at
commit 88b3daa. MIT License, Copyright (c) OpenBMB. Nothing here is to be reworded, slips included: a score under
another prompt is another task. The tests hold each string's hash, and the hash of each filled prompt.

One prompt is not the original's: to GPT-4 its runner sends math_calc's bare expression, after a system message and one
worked turn. That is a conversation and no prompt, so `gpt4` fills the template that stands under that name in the file
and that the runner passes by.
"""

from __future__ import annotations

import re
from typing import Literal

from ropebench.errors import UsageError
from ropebench.infinitebench.rows import Row

Prompts = Literal["yarn_mistral", "gpt4"]

YARN_MISTRAL = {
    "passkey": "There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. I will "
    "quiz you about the important information.\n\n{context}\n\n{input}\n\nThe pass key is",
    "number_string": "There is an important info hidden inside a lot of irrelevant text. Find it. I will quiz you "
    "about the important information there.\n\n{context}\n\n{input}\n\nThe sequence of digits is",
    "kv_retrieval": "Extract the value corresponding to the specified key in the JSON object below.\n\n{context}\n\n"
    "{input}",
    "longbook_sum_eng": "Summarize the book below.\n\n{context}\n\nSummary:",
    "longbook_choice_eng": "Read the book and answer the question.\n\n{context}\n\nQuestion: {question}\nA. {OPTION_A}"
    "\nB. {OPTION_B}\nC. {OPTION_C}\nD. {OPTION_D}\n\nThe letter of the correct answer is",
    "longbook_qa_eng": "Read the book and answer the question. Be very concise in your answer.\n\n{context}\n\n"
    "Question: {question}\nAnswer:",
    "longbook_qa_chn": "阅读以下书籍然后回答问题。\n\n{context}\n\n问题：{question}\n答案：",
    "math_find": "{prefix}\n\n{context}\n\n{input}",
    "math_calc": "Let us calculate the intermediate values of an expression.\n\nExpression: 1 + 3 + 4\n"
    "Values: [1, 4, 8]\n\nExpression: 8 - 3 + 2 - 4\nValues: [8, 5, 7, 3]\n\nExpression: {context}\nValues:",
    "code_run": "There is a function called {func} in the following Python code.\n\n{context}\n\nPlease compute the "
    "exact value of {func_call}. The value of {func_call} is",
    "code_debug": "Following is a Python code where exactly one of the functions/methods has a deliberate error that "
    "makes it crash.\n\n{context}\n\nOptions:\nA. {OPTION_A}\nB. {OPTION_B}\nC. {OPTION_C}\nD. {OPTION_D}\n\n"
    "The correct option is:",
    "longdialogue_qa_eng": "Below is a dialogue script where one random occurrence of a character name is replaced "
    'with "$$MASK$$", and you should try to guess who that character is.\n\n{context}\n\nThe name that has been '
    "replaced with $$MASK$$ is likely",
}

GPT4 = {
    "passkey": "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. I will "
    "quiz you about the important information there.\n\n{context}\n\n{input}",
    "number_string": "There is an important info hidden inside a lot of irrelevant text. Find it. I will quiz you "
    "about the important information there.\n\n{context}\n\n{input}",
    "kv_retrieval": "Extract the value corresponding to the specified key in the JSON object below.\n\n{context}\n\n"
    "{input}",
    "longbook_sum_eng": "Summarize the following book.\n\n{context}",
    "longbook_choice_eng": "Read the book and answer the question.\n\n{context}\n\nQuestion: {question}\n\nOnly one of "
    "the following options is correct, tell me the answer using one single letter (A, B, C, or D). Don't say anything "
    "else.\nA. {OPTION_A}\nB. {OPTION_B}\nC. {OPTION_C}\nD. {OPTION_D}",
    "longbook_qa_eng": "Read the book below and answer a question.\n\n{context}\n\nQuestion: {question}\n\n"
    "Be very concise.",
    "longbook_qa_chn": "请根据以下书籍回答我的问题。\n\n{context}\n\n问题：{question}\n请尽量简短地回答。",
    "math_find": "{prefix}\n\n{context}\n\n{input}",
    "math_calc": "Compute the intermediate values in the following long expression.\n\n{context}",
    "code_run": "Following is a set of Python functions. There is a function called named {func}.\n\n{context}\n\n"
    "Please give me the exact number of the return value of {func_call}. Be concise. Your response must end with the "
    "final returned value.",
    "code_debug": "There is ONLY ONE function in the large project that is deliberately made to include an obvious "
    "error. Please find the function that contains the most obvious errors. I will give you four options to narrow "
    "your scope. You can inspect the options and think. Eventually, tell me the answer using one single letter (A, B, "
    "C, or D).\n\n{context}\n\nWhich funtion has deliberate error?\nA. {OPTION_A}\nB. {OPTION_B}\nC. {OPTION_C}\n"
    "D. {OPTION_D}\n\nYou should first find the functions in the options. Repeat their content, inspect through code, "
    "and at last give me your answer for the function that has the deliberate and obvious error in A, B, C, or D.",
    "longdialogue_qa_eng": "Below is a dialogue script where one random occurrence of a character name is replaced "
    'with "$$MASK$$", and you should try to guess who that character is.\n\nThe dialogue:\n\n---\n\n{context}\n\n---'
    '\n\nEnd of dialogue.\n\nWhich character is most likely "$$MASK$$"? Just say the name used by the scriptwriter '
    "(before the colon marks) of one single character and nothing else.",
}

TEMPLATES = {"yarn_mistral": YARN_MISTRAL, "gpt4": GPT4}

# New tokens of an answer (DATA_NAME_TO_MAX_NEW_TOKENS of src/eval_utils.py).
NEW_TOKENS = {
    "passkey": 6,
    "number_string": 12,
    "kv_retrieval": 50,
    "longbook_sum_eng": 1200,
    "longbook_choice_eng": 40,
    "longbook_qa_eng": 40,
    "longbook_qa_chn": 40,
    "longdialogue_qa_eng": 40,
    "math_find": 3,
    "math_calc": 30000,
    "code_run": 5,
    "code_debug": 5,
}

CALL = re.compile(r"func_[0-9]+\(\-?[0-9]+\)")


def filled(subset: str, prompts: Prompts, row: Row) -> str:
    """The prompt of a row, as the original's create_prompt fills it: whatever stands in a context stays as it is.

    Raises UsageError for a row without what the prompt asks for.
    """
    before, after = around(subset, prompts, row)
    return before + row.context + after


def around(subset: str, prompts: Prompts, row: Row) -> tuple[str, str]:
    """What stands before a row's context in its prompt, and what after it."""
    slots = {"input": row.input, "question": row.input}
    if subset == "code_run":
        call = _found(subset, row, CALL)
        slots |= {"func": call.split("(")[0], "func_call": call}
    elif subset == "math_find":
        slots["prefix"] = f"What is {_found(subset, row, re.compile('The .+ of')).lower()[:-3]} in the following list?"
    elif subset in ("code_debug", "longbook_choice_eng"):
        if len(row.options) != 4:
            raise UsageError(f"infinitebench/{subset}: row {row.number} has {len(row.options)} options, not 4")
        slots |= {f"OPTION_{letter}": option for letter, option in zip("ABCD", row.options, strict=True)}
    before, after = TEMPLATES[prompts][subset].split("{context}")
    return before.format(**slots), after.format(**slots)


def _found(subset: str, row: Row, what: re.Pattern[str]) -> str:
    match = what.search(row.input)
    if match is None:
        raise UsageError(f"infinitebench/{subset}: row {row.number} has no {what.pattern!r} in its input")
    return match[0]
