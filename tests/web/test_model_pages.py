"""The model pages over HTTP: values equal to the Python API, a message for every error, bounded work."""

from __future__ import annotations

import base64
import json
import shutil
import socket
from collections.abc import Iterator
from math import log2
from typing import Any

import numpy as np
import pytest
from httpx import Client

import seedbed
from seedbed.errors import DamagedCheckpoint, MissingData, UsageError
from seedbed.interp.attention_extraction import compute_attention
from seedbed.report.analysis_tables import analysis_tables
from seedbed.report.run_analysis import analyze_run
from seedbed.store import open_store
from seedbed.web import model_worker
from seedbed.web.model_client import MAX_PENDING_REQUESTS
from seedbed.web.model_worker import ModelCache
from seedbed.web.responses import http_status

from .server import RunningServer, run_server

TEXTS = {
    "english": "my lord", "hebrew": "שלום לך", "sums": "3 + 5 = 1", "labels": "day 2 was grey", "lstm": "good"
}  # fmt: skip


@pytest.fixture(scope="module")
def server(model_zoo) -> Iterator[RunningServer]:
    with run_server(model_zoo.home) as running:
        yield running


@pytest.fixture(scope="module")
def page(server) -> Iterator[Client]:
    headers = {"x-seedbed-token": server.token, "origin": server.base}
    with Client(base_url=server.base, headers=headers, timeout=60) as opened:
        yield opened


def post(page: Client, path: str, **body: Any) -> Any:
    answer = page.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def generate(page: Client, **body: Any) -> list[Any]:
    answer = page.post("/api/write", json=body)
    assert answer.status_code == 200, answer.text
    events = [event.split("\n") for event in answer.text.strip().split("\n\n")]
    assert events[-1] == ["event: end", "data: null"]
    return [json.loads(data.removeprefix("data: ")) for _, data in events[:-1]]


# ---- choosing a run ----


def test_every_run_is_listed_under_its_study_with_its_checkpoints(page, model_zoo):
    listed = page.get("/api/models").json()
    assert {one["study"]: one["runs"][0]["id"] for one in listed["studies"]} == dict(model_zoo.runs)
    about = page.get(f"/api/models/{model_zoo['hebrew'][:7]}").json()
    assert (about["id"], about["task"], about["model"]) == (model_zoo["hebrew"], "text", "gpt")
    assert about["steps"] == [20, 40, 60]


def test_an_example_is_a_held_out_input_of_the_run(page, model_zoo):
    one, other = (page.get(f"/api/models/{model_zoo['sums']}/example?n={n}").json()["text"] for n in (0, 1))
    assert one != other
    a, _, b, _, result = one.split()
    assert (int(a) + int(b)) % 7 == int(result)


# ---- attention ----


@pytest.mark.parametrize(("name", "text"), TEXTS.items())
@pytest.mark.parametrize("by", ["token", "word"])
def test_attention_maps_match_the_python_api(page, model_zoo, name, text, by):
    answer = post(page, "/api/attention", run=model_zoo[name], text=text, by=by)
    maps = compute_attention(seedbed.load(model_zoo[name], model_zoo.home), text)
    maps = maps.group_by_word() if by == "word" else maps
    shape = (answer["layers"], answer["heads"], len(answer["labels"]), len(answer["labels"]))
    weights = np.frombuffer(base64.b64decode(answer["weights"]), "<u2").reshape(shape) / 65535
    assert np.abs(weights - maps.weights).max() <= 0.5 / 65535 + 1e-6
    assert (tuple(answer["labels"]), tuple(answer["padding"])) == (maps.labels, maps.padding)
    assert (answer["kind"], answer["right_to_left"]) == (maps.kind, name == "hebrew")


def test_an_earlier_step_has_different_maps(page, model_zoo):
    first, last = (post(page, "/api/attention", run=model_zoo["english"], text="my lord", step=n) for n in (20, 60))
    assert (first["step"], last["step"]) == (20, 60)
    assert first["weights"] != last["weights"]


@pytest.mark.parametrize("name", ["english", "lstm"])
def test_head_tables_match_the_command_and_are_cached(page, model_zoo, name):
    answer = page.get(f"/api/heads/{model_zoo[name]}").json()
    with open_store(model_zoo.home, read_only=True) as store:
        tables = analysis_tables([analyze_run(store, store.run(model_zoo[name]), 64, ablation=False)])
    assert [(one["title"], tuple(map(tuple, one["rows"]))) for one in answer["tables"]] == [
        (table.title, table.rows) for table in tables
    ]
    before, cache = model_worker._cached_head_tables.cache_info().hits, ModelCache(model_zoo.home)
    first, again = (next(model_worker.compute_head_tables(cache, model_zoo[name], "last")) for _ in range(2))
    assert first is again
    assert model_worker._cached_head_tables.cache_info().hits == before + 1


# ---- playground ----


@pytest.mark.parametrize("name", ["english", "hebrew", "lstm"])
def test_generated_text_matches_the_python_api_and_depends_on_the_seed(page, model_zoo, name):
    prompt = "שלום " if name == "hebrew" else "my lord"
    loaded = seedbed.load(model_zoo[name], model_zoo.home)
    texts = {}
    for seed in (5, 6):
        options = {"tokens": 50, "temperature": 1.2, "top_k": 9, "top_p": 0.95, "seed": seed}
        prompt_reply, *tokens = generate(page, run=model_zoo[name], given=prompt, **options)
        texts[seed] = "".join(token["text"] for token in tokens)
        (expected,) = loaded.sample(prompt, **options)
        assert texts[seed] == expected.text
        assert "".join(token["text"] for token in prompt_reply["given"]) == prompt
        assert generate(page, run=model_zoo[name], given=prompt, **options)[1:] == tokens
    assert texts[5] != texts[6]


def test_surprisal_of_the_prompt_matches_the_logits(page, model_zoo):
    prompt_reply, _ = generate(page, run=model_zoo["english"], given="my lord", tokens=1)
    loaded = seedbed.load(model_zoo["english"], model_zoo.home)
    probabilities = loaded.logits("my lord").double().softmax(-1)
    ids = loaded.encode("my lord")
    expected = [-log2(probabilities[t, ids[t + 1]]) for t in range(6)]
    assert prompt_reply["given"][0]["bits"] is None
    assert [token["bits"] for token in prompt_reply["given"][1:]] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["english", "lstm"])
def test_alternatives_include_the_sampled_token_with_its_probability_even_past_the_context(page, model_zoo, name):
    prompt_reply, *tokens = generate(page, run=model_zoo[name], given="my lord", tokens=60)
    given = [token["token"] for token in prompt_reply["given"]]
    ids = given + [token["token"] for token in tokens]
    for position in (len(given), 31, 32, 45, len(ids) - 1):
        body = {"ids": ids[:position], "n_prompt": len(given), "chosen": ids[position]}
        found = post(page, "/api/alternatives", run=model_zoo[name], **body)["alternatives"]
        (here,) = [one for one in found if one["token"] == ids[position]]
        assert here["probability"] == pytest.approx(2 ** -tokens[position - len(given)]["bits"], rel=1e-3)
        assert [one["probability"] for one in found[:12]] == sorted(
            (one["probability"] for one in found[:12]), reverse=True
        )


def test_sampling_filters_change_the_filtered_probabilities_only(page, model_zoo):
    ids = seedbed.load(model_zoo["english"], model_zoo.home).encode("my lo").tolist()
    found = post(page, "/api/alternatives", run=model_zoo["english"], ids=ids, n_prompt=len(ids), top_k=2)[
        "alternatives"
    ]
    assert [one["filtered"] > 0 for one in found] == [True, True] + [False] * 10
    assert sum(one["filtered"] for one in found) == pytest.approx(1)
    assert sum(one["probability"] for one in found) < 1


def test_generation_continues_from_token_ids(page, model_zoo):
    loaded = seedbed.load(model_zoo["english"], model_zoo.home)
    ids = [*loaded.encode("my ").tolist(), loaded.encode("g").item()]
    prompt_reply, *tokens = generate(page, run=model_zoo["english"], given=ids, tokens=9, temperature=0)
    assert [token["token"] for token in prompt_reply["given"]] == ids
    assert "".join(token["text"] for token in tokens) == loaded.sample("my g", tokens=9, temperature=0)[0].text


def test_an_equation_is_answered_and_ends_with_eos(page, model_zoo):
    prompt_reply, answer, end = generate(page, run=model_zoo["sums"], given="3 + 2 =", temperature=0)
    assert [token["name"] for token in prompt_reply["given"]] == ["BOS", "3", "+", "2", "="]
    best = seedbed.load(model_zoo["sums"], model_zoo.home).top_next_tokens("3 + 2 =", 1)[0]
    assert (answer["name"], end["name"]) == (best.text, "EOS")
    assert 2 ** -answer["bits"] == pytest.approx(best.probability, rel=1e-4)


def test_a_classifier_returns_label_probabilities(page, model_zoo):
    for text, label in (("day 3 was grey", "sad"), ("day 1 was fine and bright", "glad")):
        (reply,) = generate(page, run=model_zoo["labels"], given=text)
        assert reply["labels"][0]["name"] == label
        assert sum(one["probability"] for one in reply["labels"]) == pytest.approx(1)
    (reply,) = generate(page, run=model_zoo["labels"], given="day 3 was grey " * 5)
    assert reply["notice"] == "the text has 20 tokens; the model reads the first 9, its context length"


# ---- errors ----


@pytest.mark.parametrize(
    ("status", "message", "body"),
    [
        (404, "there is no run 'zzz'", {"run": "zzz", "text": "my"}),
        (404, "there is no run '../../etc/passwd'", {"run": "../../etc/passwd", "text": "my"}),
        (404, "there is no run '%'", {"run": "%", "text": "my"}),
        (404, "no saved weights for step 21; steps with weights: 20, 40, 60", {"step": 21, "text": "my"}),
        (400, "(U+05E9, column 4) is not among the", {"text": "my ש"}),
        (400, "the text has 33 tokens; attention is shown for 1 to 32", {"text": "m" * 33}),
        (400, "the text has 0 tokens", {"text": ""}),
        (400, "at most 20000 characters", {"text": "m" * 20_001}),
        (400, "by: input should be 'token' or 'word'", {"text": "my", "by": "letter"}),
        (400, "home: extra inputs are not permitted", {"text": "my", "home": "/tmp"}),
    ],
)
def test_a_bad_request_gets_a_message(page, model_zoo, status, message, body):
    answer = page.post("/api/attention", json={"run": model_zoo["english"]} | body)
    assert answer.status_code == status
    assert message in answer.json()["error"]


@pytest.mark.parametrize(
    ("message", "body"),
    [
        ("tokens: input should be less than or equal to 2000", {"tokens": 2001}),
        ("temperature: input should be greater than or equal to 0", {"temperature": -1}),
        ("top_p: input should be greater than 0", {"top_p": 0}),
        ("id 999 at position 1 is outside the vocabulary", {"given": [1, 999]}),
    ],
)
def test_generation_parameters_are_bounded(page, model_zoo, message, body):
    answer = page.post("/api/write", json={"run": model_zoo["english"]} | body)
    assert answer.status_code == 400
    assert message in answer.json()["error"]


def test_a_classifier_has_no_next_token_and_says_what_to_use(page, model_zoo):
    answer = page.post("/api/alternatives", json={"run": model_zoo["labels"], "ids": [1, 2], "n_prompt": 1})
    assert answer.status_code == 400
    assert "is a classifier and has no next token; use `seedbed classify" in answer.json()["error"]


def test_alternatives_are_bounded_by_the_generated_tokens(page, model_zoo):
    answer = page.post("/api/alternatives", json={"run": model_zoo["lstm"], "ids": [1] * 2002, "n_prompt": 1})
    assert (answer.status_code, answer.json()["error"]) == (
        400, "2,001 tokens follow the prompt; the page handles at most 2,000"
    )  # fmt: skip


def test_attention_is_bounded_by_weights_and_gradients_by_tokens(page, model_zoo, monkeypatch):
    answer = page.post("/api/attention", json={"run": model_zoo["lstm"], "text": "m" * 257})
    assert "the text has 257 tokens; the page shows at most 256 of this model" in answer.json()["error"]
    monkeypatch.setattr(model_worker, "MAX_ATTENTION_WEIGHTS", 4 * 10**2)
    with pytest.raises(UsageError, match="the page shows at most 10 of this model"):
        next(
            model_worker.compute_attention_maps(
                ModelCache(model_zoo.home), model_zoo["english"], "last", "m" * 11, "token"
            )
        )


def test_deleted_runs_and_damaged_checkpoints_are_detected_even_when_cached(model_zoo, tmp_path):
    home = shutil.copytree(model_zoo.home, tmp_path / "copy")
    cache = ModelCache(home)
    cache.get_model(model_zoo["english"], 40), cache.get_model(model_zoo["hebrew"], 20)
    (weights,) = (home / "checkpoints" / model_zoo["english"]).glob("*20.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with open_store(home) as store:
        store.remove("hebrew", [model_zoo["hebrew"]])
    with pytest.raises(DamagedCheckpoint, match=r"at step 20 .* is damaged") as damaged:
        cache.get_model(model_zoo["english"], 20)
    with pytest.raises(MissingData, match=f"there is no run '{model_zoo['hebrew']}'") as deleted:
        cache.get_model(model_zoo["hebrew"], 20)
    assert (http_status(damaged.value), http_status(deleted.value)) == (503, 404)


def test_generation_stops_when_the_browser_disconnects(server, page, model_zoo):
    body = json.dumps({"run": model_zoo["english"], "given": "my", "tokens": 2000})
    host, port = server.base.removeprefix("http://").split(":")
    head = f"POST /api/write HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: {server.base}\r\n"
    head += f"X-Seedbed-Token: {server.token}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    for _ in range(2 * MAX_PENDING_REQUESTS):  # more than may be pending at once, and each would take seconds
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall((head + body).encode())
            assert connection.recv(100).startswith(b"HTTP/1.1 200 OK")
    assert post(page, "/api/attention", run=model_zoo["english"], text="my")["labels"] == ["m", "y"]
