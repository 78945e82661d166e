"""The questions beside this file, read with no network: four are shown as worked examples, the others asked."""

import json
from pathlib import Path

import datasets


def rows(**_):
    lines = Path(__file__).with_name("questions.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line) for line in lines]
    return {"shown": datasets.Dataset.from_list(questions[:4]), "test": datasets.Dataset.from_list(questions[4:])}
