"""A model behind a server: asked in text that is counted here, checked against what the server counts, never the same
cell as a run in this process, and never with a key in the records.

The server is a small one of ours that speaks the protocol and answers from what it was sent; the real one is slow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import ropebench
from fakes import TOKENIZERS, tiny_config
from ropebench import served
from ropebench.cli import main
from ropebench.errors import UsageError
from ropebench.plan import Sweep, make_plan
from ropebench.prompt import Encoder
from ropebench.store import read, samples

TINY = Path(ropebench.__file__).parent / "_models" / "tiny"
needs_client = pytest.mark.skipif(find_spec("openai") is None, reason="needs the extra `served` (openai)")


class Server:
    """Speaks `/v1/models` and `/v1/completions`: the answer is the value behind the last key that the prompt asks for,
    found by reading the text; `sees` is added to the tokens that it says it saw; the first `busy` requests fail."""

    def __init__(self) -> None:
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(TINY)
        self.sees: int | None = 0
        self.busy = 0
        self.seen: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(
                    200, {"object": "list", "data": [{"id": "m", "object": "model", "created": 0, "owned_by": "x"}]}
                )

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.keys.append(self.headers.get("Authorization"))
                if body["model"] != "m":
                    return self._send(404, {"error": {"message": "no such model"}})
                if server.busy:
                    server.busy -= 1
                    return self._send(503, {"error": {"message": "busy"}})
                server.seen.append(body)
                self._send(200, server.reply(body))

            def _send(self, code: int, value: Any) -> None:
                data = json.dumps(value).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.model = f"openai:http://127.0.0.1:{self._http.server_port}/v1"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt = body["prompt"]
        tokens = len(self.tokenizer(prompt)["input_ids"])
        asked = prompt.rstrip()[-24:]
        at = prompt.find(asked)
        text = prompt[at + len(asked) : at + len(asked) + 16] if 0 <= at < len(prompt) - len(asked) else "?"
        usage = {"prompt_tokens": tokens + (self.sees or 0), "completion_tokens": 4, "total_tokens": tokens + 4}
        choice = {"index": 0, "text": text, "finish_reason": "stop", "logprobs": None}
        return {
            "id": "1", "object": "text_completion", "created": 0, "model": "m", "choices": [choice],
            "usage": None if self.sees is None else usage,
        }  # fmt: skip

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def words(server: Server, folder: Path, *more: str) -> list[str]:
    return [
        "run", "--model", server.model, "--as-method", "mrrope_pro", "--tokenizer", str(TINY), "--tasks", "kv",
        "--lengths", "512,1k", "--n", "3", "--results", str(folder), "-q", *more,
    ]  # fmt: skip


@needs_client
def test_a_served_model_is_measured_and_marked(server: Server, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    server.busy = 2  # the client tries again
    assert main(words(server, tmp_path, "--batch-size", "3")) == 0
    records = read(tmp_path)
    assert [one["condition"]["length"] for one in records] == [1024, 512]
    for one in records:
        assert one["outcome"]["status"] == "ok"
        assert one["model"]["id"] == "served:m"
        assert one["model"]["source"] == "served"
        assert (one["model"]["revision"], one["model"]["dtype"], one["model"]["attention"]) == (None, None, None)
        assert one["model"]["served"]["name"] == "m"
        assert one["model"]["served"]["tokenizer"] == "tiny"
        assert one["method"]["label"] == "mrrope_pro×2"  # the bundled model's window is 512
        assert one["method"]["inv_freq"] is None  # nothing was read back
        assert one["cost"]["sizes"]["server_counts_tokens"] == 1
    rows = samples(tmp_path)
    assert max(row["tokens"] for row in rows) <= 1024
    assert "Bearer sk-very-secret" in server.keys
    stored = "".join(file.read_text() for file in tmp_path.glob("*.jsonl"))
    assert "secret" not in stored
    assert "127.0.0.1" not in stored
    assert main(words(server, tmp_path)) == 0  # the same command again measures nothing
    assert len(read(tmp_path)) == 2
    # The ids counted here are those that the server's own tokenizer makes of the text.
    assert {len(server.tokenizer(body["prompt"])["input_ids"]) for body in server.seen if body["max_tokens"] > 1} <= {
        row["tokens"] - body["max_tokens"] for row in rows for body in server.seen
    }


@needs_client
def test_a_served_cell_is_never_that_of_a_run_in_this_process(server: Server) -> None:
    sweep = Sweep(server.model, tasks=("kv",), lengths="1k", as_method="mrrope_pro", tokenizer=str(TINY))
    (there,) = make_plan(sweep).cells
    here = make_plan(Sweep(str(TINY), ("mrrope_pro",), ("kv",), "1k", baseline=False)).cells[0]
    assert there.identity["task"] == here.identity["task"]
    assert there.identity["method"] == here.identity["method"]
    assert there.id != here.id
    assert there.identity["model"]["id"] != here.identity["model"]["id"]


@needs_client
@pytest.mark.parametrize("extra, status", [(5, "error"), (-100, "error"), (None, "ok")])
def test_a_server_that_sees_another_prompt_is_an_error(
    server: Server, tmp_path: Path, extra: int | None, status: str
) -> None:
    server.sees = extra
    assert main([*words(server, tmp_path), "--lengths", "1k"]) == (status == "error")
    (record,) = read(tmp_path)
    assert record["outcome"]["status"] == status
    if extra is not None:
        assert "tokens where the prompt has" in record["outcome"]["error"]["message"]
    else:
        assert record["cost"]["sizes"]["server_counts_tokens"] == 0


@needs_client
def test_what_cannot_be_is_said_in_one_line(server: Server, tmp_path: Path, capsys) -> None:
    base = words(server, tmp_path)
    for more, said in (
        (["--tasks", "proofpile", "--docs", "installed"], "needs likelihood"),
        (["--method", "yarn"], "leave --method out"),
        (["--dtype", "float32"], "loaded by its server"),
        (["--matched"], "one factor for all lengths"),
        (["--served-model", "other"], "gives no completion for model 'other'"),
        (["--model", "openai:localhost"], "write openai:http"),
        (["--model", "openai:http://me:key@localhost/v1"], "OPENAI_API_KEY"),
        (["--model", "openai:http://127.0.0.1:9/v1"], "no model server answers"),
        (["--model", str(TINY)], "is for a served model"),
        (["--executor", "ray"], "leave it out"),
    ):
        if "--executor" in more and find_spec("ray") is None:
            continue
        assert main([*base, *more]) == 2, more
        assert said in capsys.readouterr().err, more
    assert read(tmp_path) == []
    with pytest.raises(UsageError, match="needs --tokenizer"):
        make_plan(Sweep(server.model, tasks=("kv",), as_method="yarn"))


def test_a_prompt_that_is_no_text_is_refused() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(TOKENIZERS / "bpe-bos")
    encoder = Encoder(tokenizer)
    runner = served.ServedRunner(None, "m", None, encoder)
    ids = encoder.prompt("one two three, one two three.")
    assert tokenizer(runner.text_of(ids))["input_ids"] == list(ids)
    with pytest.raises(ValueError, match="this prompt is no text"):
        runner.text_of(ids[1:])  # without the BOS that the server's tokenizer would add
    assert tiny_config("llama").vocab_size == 500


@pytest.mark.slow
@pytest.mark.skipif(
    not all(find_spec(name) for name in ("openai", "fastapi", "uvicorn")),
    reason="needs `transformers serve` (transformers[serving]) and openai",
)
def test_a_real_server_scores_as_a_run_in_this_process(tmp_path: Path) -> None:
    """`transformers serve` with the bundled model, unmodified: the same answers, sample by sample."""
    port = 8000 + os.getpid() % 1000
    process = subprocess.Popen(
        [sys.executable, "-m", "transformers.cli.transformers", "serve", str(TINY), "--port", str(port),
         "--device", "cpu", "--dtype", "float32"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    task = ["--tasks", "kv", "--lengths", "256,512", "--n", "8", "-q"]
    address = ["--model", f"openai:http://127.0.0.1:{port}/v1", "--as-method", "none", "--tokenizer", str(TINY)]
    try:
        until = time.monotonic() + 240
        run = ["run", *address, "--served-model", str(TINY), *task, "--results", str(tmp_path / "there")]
        while (code := main(run)) == 2 and time.monotonic() < until and process.poll() is None:
            time.sleep(2)
        assert code == 0
    finally:
        process.terminate()
        process.wait()
    here = ["run", "--model", str(TINY), "--method", "none", "--dtype", "float32", "--device", "cpu", *task]
    assert main([*here, "--results", str(tmp_path / "here")]) == 0

    def scores(folder: Path) -> dict[Any, Any]:
        of = {record["cell_id"]: record["condition"]["length"] for record in read(folder)}
        return {(of[row["cell_id"]], row["index"]): (row["prompt_sha256"], row["scores"]) for row in samples(folder)}

    assert scores(tmp_path / "there") == scores(tmp_path / "here")
