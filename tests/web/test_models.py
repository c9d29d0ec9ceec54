"""The model views over HTTP: the numbers that Python has, a sentence for everything that can be wrong, bounded work."""

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
from seedbed.store.store import Store
from seedbed.web import model_handlers
from seedbed.web.model_cache import ModelCache
from seedbed.web.model_client import MAX_PENDING_REQUESTS
from seedbed.web.responses import http_status

from .server import Served, served

TEXTS = {
    "english": "my lord", "hebrew": "שלום לך", "sums": "3 + 5 = 1", "labels": "day 2 was grey", "lstm": "good"
}  # fmt: skip


@pytest.fixture(scope="module")
def server(kinds) -> Iterator[Served]:
    with served(kinds.home) as running:
        yield running


@pytest.fixture(scope="module")
def page(server) -> Iterator[Client]:
    headers = {"x-seedbed-token": server.token, "origin": server.base}
    with Client(base_url=server.base, headers=headers, timeout=60) as opened:
        yield opened


def asked(page: Client, path: str, **body: Any) -> Any:
    answer = page.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def written(page: Client, **body: Any) -> list[Any]:
    answer = page.post("/api/write", json=body)
    assert answer.status_code == 200, answer.text
    events = [event.split("\n") for event in answer.text.strip().split("\n\n")]
    assert events[-1] == ["event: end", "data: null"]
    return [json.loads(data.removeprefix("data: ")) for _, data in events[:-1]]


# ---- choosing ----


def test_every_run_is_listed_under_its_study_and_told_with_its_kept_steps(page, kinds):
    listed = page.get("/api/models").json()
    assert {one["study"]: one["runs"][0]["id"] for one in listed["studies"]} == dict(kinds.runs)
    about = page.get(f"/api/models/{kinds['hebrew'][:7]}").json()
    assert (about["id"], about["task"], about["model"], about["steps"]) == (
        kinds["hebrew"],
        "text",
        "gpt",
        [20, 40, 60],
    )


def test_an_example_is_a_held_out_text_of_the_run(page, kinds):
    one, other = (page.get(f"/api/models/{kinds['sums']}/example?n={n}").json()["text"] for n in (0, 1))
    assert one != other
    a, _, b, _, result = one.split()
    assert (int(a) + int(b)) % 7 == int(result)


# ---- inside ----


@pytest.mark.parametrize(("name", "text"), TEXTS.items())
@pytest.mark.parametrize("by", ["token", "word"])
def test_the_page_has_the_maps_that_python_has(page, kinds, name, text, by):
    answer = asked(page, "/api/attention", run=kinds[name], text=text, by=by)
    maps = compute_attention(seedbed.load(kinds[name], kinds.home), text)
    maps = maps.group_by_word() if by == "word" else maps
    shape = (answer["layers"], answer["heads"], len(answer["labels"]), len(answer["labels"]))
    weights = np.frombuffer(base64.b64decode(answer["weights"]), "<u2").reshape(shape) / 65535
    assert np.abs(weights - maps.weights).max() <= 0.5 / 65535 + 1e-6
    assert (tuple(answer["labels"]), tuple(answer["padding"])) == (maps.labels, maps.padding)
    assert (answer["kind"], answer["right_to_left"]) == (maps.kind, name == "hebrew")


def test_an_earlier_step_has_other_maps(page, kinds):
    first, last = (asked(page, "/api/attention", run=kinds["english"], text="my lord", step=n) for n in (20, 60))
    assert (first["step"], last["step"]) == (20, 60)
    assert first["weights"] != last["weights"]


@pytest.mark.parametrize("name", ["english", "lstm"])
def test_head_numbers_are_those_of_the_command_and_computed_once(page, kinds, name):
    answer = page.get(f"/api/heads/{kinds[name]}").json()
    with Store.open_read_only(kinds.home) as store:
        tables = analysis_tables([analyze_run(store, store.run(kinds[name]), 64, ablation=False)])
    assert [(one["title"], tuple(map(tuple, one["rows"]))) for one in answer["tables"]] == [
        (table.title, table.rows) for table in tables
    ]
    before, warm = model_handlers._cached_head_tables.cache_info().hits, ModelCache(kinds.home)
    first, again = (next(model_handlers.compute_head_tables(warm, kinds[name], "last")) for _ in range(2))
    assert first is again
    assert model_handlers._cached_head_tables.cache_info().hits == before + 1


# ---- playground ----


@pytest.mark.parametrize("name", ["english", "hebrew", "lstm"])
def test_a_text_is_the_one_that_python_draws_and_its_seed_decides(page, kinds, name):
    prompt = "שלום " if name == "hebrew" else "my lord"
    loaded = seedbed.load(kinds[name], kinds.home)
    texts = {}
    for seed in (5, 6):
        dials = {"tokens": 50, "temperature": 1.2, "top_k": 9, "top_p": 0.95, "seed": seed}
        begun, *tokens = written(page, run=kinds[name], given=prompt, **dials)
        texts[seed] = "".join(token["text"] for token in tokens)
        (expected,) = loaded.sample(prompt, **dials)
        assert texts[seed] == expected.text
        assert "".join(token["text"] for token in begun["given"]) == prompt
        assert written(page, run=kinds[name], given=prompt, **dials)[1:] == tokens
    assert texts[5] != texts[6]


def test_surprisal_of_the_prompt_is_what_the_model_gives_its_tokens(page, kinds):
    begun, _ = written(page, run=kinds["english"], given="my lord", tokens=1)
    loaded = seedbed.load(kinds["english"], kinds.home)
    shares = loaded.logits("my lord").double().softmax(-1)
    ids = loaded.encode("my lord")
    expected = [-log2(shares[place, ids[place + 1]]) for place in range(6)]
    assert begun["given"][0]["bits"] is None
    assert [token["bits"] for token in begun["given"][1:]] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["english", "lstm"])
def test_a_tokens_alternatives_hold_the_probability_it_was_drawn_with_also_past_the_context(page, kinds, name):
    begun, *tokens = written(page, run=kinds[name], given="my lord", tokens=60)
    given = [token["token"] for token in begun["given"]]
    ids = given + [token["token"] for token in tokens]
    for place in (len(given), 31, 32, 45, len(ids) - 1):
        body = {"ids": ids[:place], "begun": len(given), "chosen": ids[place]}
        found = asked(page, "/api/alternatives", run=kinds[name], **body)["alternatives"]
        (here,) = [one for one in found if one["token"] == ids[place]]
        assert here["probability"] == pytest.approx(2 ** -tokens[place - len(given)]["bits"], rel=1e-3)
        assert [one["probability"] for one in found[:12]] == sorted(
            (one["probability"] for one in found[:12]), reverse=True
        )


def test_filters_show_in_what_is_drawn_and_not_in_what_the_model_thinks(page, kinds):
    ids = seedbed.load(kinds["english"], kinds.home).encode("my lo").tolist()
    found = asked(page, "/api/alternatives", run=kinds["english"], ids=ids, begun=len(ids), top_k=2)["alternatives"]
    assert [one["drawn"] > 0 for one in found] == [True, True] + [False] * 10
    assert sum(one["drawn"] for one in found) == pytest.approx(1)
    assert sum(one["probability"] for one in found) < 1


def test_a_text_goes_on_from_tokens_that_were_chosen(page, kinds):
    loaded = seedbed.load(kinds["english"], kinds.home)
    ids = [*loaded.encode("my ").tolist(), loaded.encode("g").item()]
    begun, *tokens = written(page, run=kinds["english"], given=ids, tokens=9, temperature=0)
    assert [token["token"] for token in begun["given"]] == ids
    assert "".join(token["text"] for token in tokens) == loaded.sample("my g", tokens=9, temperature=0)[0].text


def test_an_equation_is_answered_and_ends(page, kinds):
    begun, answer, end = written(page, run=kinds["sums"], given="3 + 2 =", temperature=0)
    assert [token["name"] for token in begun["given"]] == ["BOS", "3", "+", "2", "="]
    best = seedbed.load(kinds["sums"], kinds.home).top_next_tokens("3 + 2 =", 1)[0]
    assert (answer["name"], end["name"]) == (best.text, "EOS")
    assert 2 ** -answer["bits"] == pytest.approx(best.probability, rel=1e-4)


def test_a_classifier_tells_labels_that_it_learnt(page, kinds):
    for text, label in (("day 3 was grey", "sad"), ("day 1 was fine and bright", "glad")):
        (told,) = written(page, run=kinds["labels"], given=text)
        assert told["labels"][0]["name"] == label
        assert sum(one["probability"] for one in told["labels"]) == pytest.approx(1)
    (told,) = written(page, run=kinds["labels"], given="day 3 was grey " * 5)
    assert told["notice"] == "20 tokens were given; the model reads the first 9 of them, its context"


# ---- what can be wrong ----


@pytest.mark.parametrize(
    ("status", "sentence", "body"),
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
def test_what_is_wrong_with_a_question_is_said_in_a_sentence(page, kinds, status, sentence, body):
    answer = page.post("/api/attention", json={"run": kinds["english"]} | body)
    assert answer.status_code == status
    assert sentence in answer.json()["error"]


@pytest.mark.parametrize(
    ("sentence", "body"),
    [
        ("tokens: input should be less than or equal to 2000", {"tokens": 2001}),
        ("temperature: input should be greater than or equal to 0", {"temperature": -1}),
        ("top_p: input should be greater than 0", {"top_p": 0}),
        ("id 999 at position 1 is outside the vocabulary", {"given": [1, 999]}),
    ],
)
def test_texts_are_bounded(page, kinds, sentence, body):
    answer = page.post("/api/write", json={"run": kinds["english"]} | body)
    assert answer.status_code == 400
    assert sentence in answer.json()["error"]


def test_alternatives_are_bounded_by_the_tokens_that_were_written(page, kinds):
    answer = page.post("/api/alternatives", json={"run": kinds["lstm"], "ids": [1] * 2002, "begun": 1})
    assert (answer.status_code, answer.json()["error"]) == (
        400, "2,001 tokens were written since; the page goes back over 2,000"
    )  # fmt: skip


def test_maps_are_bounded_by_their_cells_and_gradients_by_their_tokens(page, kinds, monkeypatch):
    answer = page.post("/api/attention", json={"run": kinds["lstm"], "text": "m" * 257})
    assert "the text has 257 tokens; the page shows 256 of this model at most" in answer.json()["error"]
    monkeypatch.setattr(replies, "MOST_CELLS", 4 * 10**2)
    with pytest.raises(UsageError, match="the page shows 10 of this model at most"):
        next(model_handlers.compute_attention_maps(ModelCache(kinds.home), kinds["english"], "last", "m" * 11, "token"))


def test_deleted_runs_and_damaged_checkpoints_are_told_even_when_they_were_warm(kinds, tmp_path):
    home = shutil.copytree(kinds.home, tmp_path / "copy")
    warm = ModelCache(home)
    warm.get_model(kinds["english"], 40), warm.get_model(kinds["hebrew"], 20)
    (weights,) = (home / "checkpoints" / kinds["english"]).glob("*20.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with Store.open(home) as store:
        store.remove("hebrew", [kinds["hebrew"]])
    with pytest.raises(DamagedCheckpoint, match=r"at step 20 .* is damaged") as damaged:
        warm.get_model(kinds["english"], 20)
    with pytest.raises(MissingData, match=f"there is no run '{kinds['hebrew']}'") as deleted:
        warm.get_model(kinds["hebrew"], 20)
    assert (http_status(damaged.value), http_status(deleted.value)) == (503, 404)


def test_texts_whose_browsers_went_away_are_not_written_on(server, page, kinds):
    body = json.dumps({"run": kinds["english"], "given": "my", "tokens": 2000})
    host, port = server.base.removeprefix("http://").split(":")
    head = f"POST /api/write HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: {server.base}\r\n"
    head += f"X-Seedbed-Token: {server.token}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    for _ in range(2 * MAX_PENDING_REQUESTS):  # more than may be open at once, and each would take seconds
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall((head + body).encode())
            assert connection.recv(100).startswith(b"HTTP/1.1 200 OK")
    assert asked(page, "/api/attention", run=kinds["english"], text="my")["labels"] == ["m", "y"]
