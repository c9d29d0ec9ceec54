"""A stored run used from Python and from the command line, for text and for equations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer.testing
from typer.testing import CliRunner

import seedbed
from seedbed.cli import app
from seedbed.errors import MissingData, UsageError
from seedbed.models.build import build_pack
from seedbed.models.model_size import count_parameters
from seedbed.records import CheckpointEvent, FinishEvent, Pack, Placement, Plan, Run
from seedbed.sampling.loaded_run import LoadedRun
from seedbed.sampling.results import StreamChunk
from seedbed.settings import Settings
from seedbed.store import open_store
from seedbed.study.plan import compute_run_id
from tests.interp.factories import label_settings, make_loaded_run

SMALL = {"model.layers": 1, "model.dim": 8}
TEXT = "my lord, she said: good night!\nשלום לך 😀\n" * 20


def store_run(home: Path, values: dict[str, object], seed: int = 3, steps: tuple[int, ...] = (5, 9)) -> str:
    """Stores a run at its initial weights with checkpoints at several steps, as if it had been trained."""
    settings = Settings.from_flat(SMALL | values)
    run = Run(compute_run_id(settings, seed), seed, {}, settings, count_parameters(settings))
    _, parameters = build_pack(
        [settings], [seed], torch.zeros(1, dtype=torch.int64), torch.float32, settings.task.dataset_info()
    )
    with open_store(home) as store:
        store.register(Plan("toy", "", (), (run,)))
        [pack] = store.claim([Pack("p", (run,), 1)], lambda _: Placement())
        with store.lock(pack.id):
            store.resume(pack.id)
            for step in steps:
                parameters.weights += 0.1
                store.save(
                    pack.id, CheckpointEvent(step, {"x": parameters.weights.numpy()}, {0: parameters.get_arrays(0)})
                )
            store.record(pack.id, [FinishEvent(0, steps[-1])])
            store.finish(pack.id)
    return run.id


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def corpus(home: Path) -> Path:
    path = home / "letters.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def letters(home: Path, corpus: Path) -> str:
    return store_run(home, {"task.kind": "text", "task.corpus": str(corpus), "task.length": 12, "model.heads": 2})


@pytest.fixture(scope="module")
def sums(home: Path) -> str:
    return store_run(home, {"task.p": 7, "model.heads": 2})


def run_cli(*arguments: object, code: int = 0) -> tuple[str, str]:
    """Output and error output of a command."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return result.stdout, result.stderr


def test_importing_seedbed_does_not_load_torch():
    code = "import sys, seedbed; seedbed.load; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_loaded_run_has_the_weights_of_the_requested_step(home, letters):
    last, first = seedbed.load(letters[:6], home), seedbed.load(letters, home, step=5)
    assert (last.step, first.step) == (9, 5)
    difference = last.model.embed.weight - first.model.embed.weight
    assert torch.allclose(difference, torch.full_like(difference, 0.1), atol=1e-5)


def test_text_and_its_token_ids_give_equal_logits(home, letters):
    model = seedbed.load(letters, home)
    logits = model.logits("my lord")
    assert logits.shape == (7, model.tokenizer.size)
    assert torch.equal(logits, model.logits(model.encode("my lord")))


def test_samples_continue_the_prompt_and_hold_their_tokens(home, letters):
    model = seedbed.load(letters, home)
    first, second = model.sample("my lord", tokens=30, n=2, seed=4)
    assert str(first) == "my lord" + first.text
    assert len(first.text) == len(first.tokens) == len(first.log_probabilities) == 30
    assert model.tokenizer.decode(first.tokens) == first.text != second.text
    assert "".join(chunk.text for chunk in model.stream("my lord", tokens=30, seed=4)) == first.text


def test_byte_tokens_are_decoded_to_whole_characters(home, corpus):
    model = seedbed.load(
        store_run(home, {"task.kind": "text", "task.corpus": str(corpus), "task.tokenizer": "bytes", "model.heads": 2}),
        home,
    )
    [sample] = model.sample("שלום", tokens=40)
    assert sample.text == model.tokenizer.decode(sample.tokens)
    assert len(sample.tokens) == 40


def test_an_empty_prompt_starts_a_line_or_an_equation(home, letters, sums):
    text, equation = seedbed.load(letters, home), seedbed.load(sums, home)
    assert text.tokenizer.decode(text.default_prompt_ids()) == "\n"
    assert equation.tokenizer.texts[equation.default_prompt_ids()[0]] == "BOS"
    assert not text.sample("", tokens=5)[0].prompt


def test_the_answer_to_an_equation_has_probabilities(home, sums):
    model = seedbed.load(sums, home)
    candidates = model.top_next_tokens("2 + 3 =", n=12)
    expected = model.model(torch.tensor([[[9, 2, 7, 3, 8]]]))[0, 0, -1].softmax(-1)
    assert sum(candidate.probability for candidate in candidates) == pytest.approx(1)
    assert candidates[0].token == expected.argmax()
    assert candidates[0].probability == pytest.approx(expected.max().item())
    out, _ = run_cli("sample", sums, "--prompt", "2+3=", "--home", home, "--tokens", 1, "--temperature", 0)
    answer = "" if candidates[0].text in ("BOS", "EOS", "PAD") else f" {candidates[0].text}"
    assert out.splitlines()[0] == f"2+3={answer}"
    assert f"{candidates[0].text!r} {candidates[0].probability:.1%}" in out.splitlines()[1]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [("2 + 9 =", "'9' .column 5. is not a token"), ("2 & 3", "'&' .column 3."), ("1 + 2 + 3 =", "7 tokens with BOS")],
)
def test_an_invalid_equation_is_refused_by_its_position(home, sums, prompt, message):
    with pytest.raises(UsageError, match=message):
        seedbed.load(sums, home).sample(prompt)


def test_a_corpus_that_changed_after_training_is_refused_where_the_vocabulary_was_not_kept(home, tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("abc" * 100)
    run = store_run(home, {"task.kind": "text", "task.corpus": str(path), "task.length": 5, "model.heads": 2})
    path.write_text("abd" * 100)
    # In a new process, since corpora are cached.
    command = [sys.executable, "-m", "seedbed", "sample", run, "--home", str(home)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 4
    assert f"{path} has changed since run {run} was trained on it" in result.stderr
    assert "did not keep its vocabulary" in result.stderr


def test_a_step_without_weights_is_refused_with_the_available_steps(home, letters):
    with pytest.raises(MissingData, match="steps with weights: 5, 9"):
        seedbed.load(letters, home, step=7)


# ---- the commands ----


def test_sample_prints_every_text_with_the_prompt_under_a_heading(home, letters):
    out, _ = run_cli("sample", letters, "--home", home, "--prompt", "שלום", "--tokens", 20, "-n", 3, "--seed", 2)
    expected = seedbed.load(letters, home).sample("שלום", tokens=20, n=3, seed=2)
    with_headings = [f"── run {letters}, text {i} of 3 ──\n{one}" for i, one in enumerate(expected, 1)]
    assert out == "\n\n".join(with_headings) + "\n"


def test_a_single_text_has_no_heading(home, letters):
    out, _ = run_cli("sample", letters, "--home", home, "--prompt", "my", "--tokens", 20)
    assert out == f"{seedbed.load(letters, home).sample('my', tokens=20)[0]}\n"


def test_copied_characters_are_counted_and_reported_in_json(home, letters, monkeypatch):
    """With a model that has memorised the start of its training text."""
    memorised = TEXT[:60]
    chunks = [StreamChunk(0, character, 1, -0.5) for character in memorised + "zzz"]
    monkeypatch.setattr(LoadedRun, "stream_with_model", lambda *_, **__: iter(chunks))
    out, errors = run_cli("sample", letters, "--home", home, "--tokens", 63)
    assert out == f"{memorised}zzz\n"
    assert "60 of 63 characters are in spans of 20 or more" in errors
    with monkeypatch.context() as terminal:
        terminal.setattr(typer.testing._NamedTextIOWrapper, "isatty", lambda _: True, raising=False)
        shown = CliRunner().invoke(app, ["sample", letters, "--home", str(home)], color=True).stdout
    assert shown.startswith(typer.style(memorised[:1], fg="yellow", underline=True)[:-5])
    assert shown.index("\x1b[0m") < shown.index("zzz")
    [sample] = json.loads(run_cli("sample", letters, "--home", home, "--json")[0])["samples"]
    assert sample["copied"] == [[0, 60]]
    assert "characters lie" not in run_cli("sample", letters, "--home", home, "--no-copied")[1]


def test_copied_spans_are_available_from_python(home, letters, sums):
    model = seedbed.load(letters, home)
    assert [(span.start, span.end) for span in model.find_training_copies("xx" + TEXT[3:40] + "q")] == [(2, 39)]
    assert model.sample("my", tokens=5, copied=True)[0].copied_spans == ()
    assert model.sample("my", tokens=5)[0].copied_spans is None
    with pytest.raises(UsageError, match="no training text"):
        seedbed.load(sums, home).find_training_copies("2 + 3")


def test_an_encoder_pads_its_text_as_in_training(tmp_path):
    loaded = make_loaded_run(label_settings(tmp_path))
    attention, n = loaded.attention("we the people."), len(loaded.encode("we the people."))
    assert attention.shape == (2, 2, 9, 9)
    assert attention.padding == (False,) * n + (True,) * (9 - n)
    torch.testing.assert_close(attention.sum(-1), torch.ones(2, 2, 9))
    padded = torch.zeros(1, 1, 9, dtype=torch.int64)
    padded[0, 0, :n] = torch.from_numpy(loaded.encode("we the people."))
    assert torch.equal(loaded.logits("we the people."), loaded.model(padded)[0, 0])
    with pytest.raises(UsageError, match="expected 1 to 9"):
        loaded.attention("we the people. " * 4)


def test_sample_as_json_has_tokens_and_log_probabilities(home, letters):
    out, _ = run_cli("sample", letters, "--home", home, "--prompt", "my 😀", "--tokens", 7, "--step", "5", "--json")
    document = json.loads(out)
    assert (document["run"], document["step"]) == (letters, 5)
    assert len(document["samples"][0]["log_probabilities"]) == 7
    assert len(document["alternatives"]) == 5


def test_a_prompt_of_100_kilobytes_works_with_a_notice(home, letters):
    out, errors = run_cli("sample", letters, "--home", home, "--prompt", "my lord " * 12_500, "--tokens", 3)
    assert "100,000 tokens; the model reads the last 12" in errors
    assert len(out) == 100_000 + 3 + 1


def test_read_prints_bits_per_character_and_surprising_words(home, letters, tmp_path):
    path = tmp_path / "read.txt"
    path.write_text("\ufeffgood night my lord\r\n", encoding="utf-8", newline="")
    expected = seedbed.load(letters, home).surprisal("good night my lord\n")
    out, _ = run_cli("read", letters, path, "--home", home, "--top", 2)
    assert f"{expected.bits_per_character:.4f} bits per character" in out
    assert repr(expected.most_surprising_words(1)[0].text) in out.splitlines()[1]
    assert len(out.splitlines()) == 3
    document = json.loads(run_cli("read", letters, path, "--home", home, "--json")[0])
    assert document["bits_per_byte"] == pytest.approx(expected.bits_per_byte)
    assert [token["loss"] for token in document["tokens"][1:]] == pytest.approx(expected.losses[1:].tolist())
    assert document["tokens"][0]["loss"] is None


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--prompt", "quiz"], 2, "'q' (U+0071, column 1)"),
        (["--temperature", "-1"], 2, "temperature = -1.0"),
        (["--temperature", "nan"], 2, "temperature = nan"),
        (["--top-p", "0"], 2, "top-p = 0.0"),
        (["--top-p", "2"], 2, "top-p = 2.0"),
        (["--top-k", "-3"], 2, "top-k = -3"),
        (["--step", "soon"], 2, "--step soon"),
        (["--step", "6"], 4, "steps with weights"),
        (["-n", "0"], 2, "at least 1"),
    ],
)
def test_invalid_arguments_are_refused_with_one_line(home, letters, arguments, code, message):
    out, errors = run_cli("sample", letters, "--home", home, *arguments, code=code)
    assert message in errors
    assert out == ""
    assert len(errors.splitlines()) == 1
