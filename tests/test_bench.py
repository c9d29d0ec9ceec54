"""`make bench`: it runs, compares what is the same function, and writes figures that can be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
TEXT = {"task.kind": "text", "task.length": 7, "task.val_fraction": 0.0, "train.batch_size": 3, "model.dim": 12}
ENCODER = {
    "task.kind": "labels", "task.length": 5, "model.kind": "encoder", "model.dim": 8, "model.heads": 2,
    "model.activation": "relu", "model.batch_norm": True, "train.batch_size": 7,
}  # fmt: skip
PEERS = {
    "encoder": ENCODER,
    "encoder-alibi": ENCODER | {"model.positions": "alibi", "model.batch_norm": False, "model.norm": "pre"},
    "lstm": {"model.kind": "lstm", "model.dim": 8, "task.p": 7},
    "lstm-of-text": TEXT | {"model.kind": "lstm", "model.layers": 3, "model.hidden": 5},
    "lstm-tied": TEXT | {
        "model.kind": "lstm", "model.hidden": 5, "model.projection": 12, "model.tied": True, "model.gate_biases": 2,
        "model.output_bias": False, "task.sampler": "epochs",
    },
    "gpt-rotary": TEXT | {"model.heads": 2, "model.positions": "rotary", "model.norm": "pre", "model.final_norm": True},
    "gpt-alibi": TEXT | {"model.positions": "alibi", "model.hidden": 10, "model.tied": True, "task.sampler": "windows"},
    "gpt-of-small-batches": {"model.dim": 8, "task.p": 11, "train.batch_size": 9, "train.label_smoothing": 0.1},
    "gpt-of-unequal-lengths": {"model.dim": 8, "task.p": 5, "task.orders": (2, 3), "train.batch_size": 30},
}  # fmt: skip


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def corpora():
    if not os.environ.get("SEEDBED_DATA"):
        pytest.skip("needs the real corpora: set SEEDBED_DATA to their folder")


def test_a_quick_run_writes_ratios_and_what_they_depend_on(tmp_path):
    out = tmp_path / "figures.json"
    words = [sys.executable, BENCHMARKS / "bench.py", "--quick", "--only", "arithmetic-gpt", "--out", out]
    patient = os.environ | {"OMP_WAIT_POLICY": "passive"}  # else threads that wait take the cores of other tests
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=patient)
    assert done.returncode == 0, done.stderr
    report = json.loads(out.read_text())
    assert {"command", "machine", "versions", "load_before", "load_after"} <= report.keys()
    assert all(check["difference"] < 1e-9 for check in report["checks"])
    (comparison,) = report["comparisons"]
    rows = {row["plan"]["name"]: row for row in comparison["sides"]}
    ratio = rows["seedbed"]["against"]["plain"]
    assert 0 < ratio["lowest"] <= ratio["ratio"] <= ratio["highest"]
    assert rows["plain"]["lowest"] <= rows["plain"]["rate"] <= rows["plain"]["highest"]
    assert f"{ratio['ratio']:.2f}× plain" in done.stdout
    assert f"{1e6 / rows['plain']['rate']:,.1f} µs a model and step" in done.stdout


@pytest.mark.parametrize("dials", PEERS.values(), ids=PEERS)
def test_every_peer_is_the_same_function_as_ours(benchmarks, request, dials):
    import check

    from seedbed.settings import Settings

    if dials.get("task.kind") == "labels":
        request.getfixturevalue("corpora")
    assert check.difference_to("plain", Settings.from_flat(dials), "cpu") < 1e-11


@pytest.mark.parametrize(("kind", "last"), [("gpt", "head"), ("lstm", "head"), ("encoder", "labels")])
def test_a_peer_that_is_another_function_is_found_out(benchmarks, request, kind, last, monkeypatch):
    import check
    import peers

    from seedbed.settings import Settings

    if kind == "encoder":
        request.getfixturevalue("corpora")
    small = {"model.kind": kind, "model.dim": 8, "model.layers": 1, "task.p": 11}
    settings = Settings.from_flat(ENCODER if kind == "encoder" else small)
    assert check.difference_to("plain", settings, "cpu") < check.AGREE

    def off_by_little(given):
        model = peers.plain_model(given)
        getattr(model, last).register_forward_hook(lambda _, __, logits: logits * (1 + 1e-6))
        return model

    monkeypatch.setitem(peers.MODELS, "plain", off_by_little)
    assert check.difference_to("plain", settings, "cpu") > check.AGREE


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam", "adamw"])
def test_a_plain_loop_moves_weights_as_ours_does(benchmarks, kind):
    import torch
    from loops import make_optimizer

    from seedbed.settings import TrainSettings
    from seedbed.training.optim import Optimizer

    dials = TrainSettings(optimizer=kind, lr=0.03, weight_decay=0.2, clip=0.0, betas=(0.8, 0.9), momentum=0.7)
    ours = torch.randn(1, 5, dtype=torch.float64)
    theirs = torch.nn.Parameter(ours[0].clone())
    rows, plain = Optimizer([dials], ours), make_optimizer([theirs], dials)
    for _ in range(3):
        theirs.grad = torch.randn(5, dtype=torch.float64)
        numbers = rows.next_hyperparameters(theirs.grad.norm()[None], torch.ones(1), torch.tensor([True]))
        rows.step(theirs.grad[None].clone(), torch.tensor([True]), *numbers)
        plain.step()
    torch.testing.assert_close(ours[0], theirs.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_scenarios_are_complete_and_compare_like_with_like(benchmarks, corpora, device):
    from growth import growths
    from scenarios import scenarios

    found = scenarios(device, quick=False)
    assert len({one.name for one in found}) == len(found)
    for one in found:
        assert len({plan.name for plan in one.sides}) == len(one.sides)
        sides = [plan for plan in one.sides if plan.kind != "matmul"]
        assert {"ours", "plain"} <= {plan.kind for plan in sides}
        assert {plan.device for plan in one.sides} == {device}
        assert len({plan.settings()[0] for plan in sides}) == 1
    assert [growth.name for growth in growths(device, quick=False)] == ["R", "width", "length"]


def test_a_gpu_gets_the_engines_packs_and_corpora_of_a_long_study(benchmarks, corpora):
    from scenarios import scenarios

    ours = {
        (one.name, plan.n_runs): plan for one in scenarios("cuda", False) for plan in one.sides if plan.kind == "ours"
    }
    assert {("arithmetic-gpt", 128), ("classifiers", 256), ("characters", 8), ("characters-bf16", 1)} <= ours.keys()
    assert {ours[key].engine for key in ours if not key[0].startswith("lstm")} == {"compiled"}
    assert {ours["lstm", 1].engine, ours["lstm-pack-128", 64].engine, ours["lstm-pack-64", 64].engine} == {"graph"}
    settings = {name: plan.settings()[0] for (name, _), plan in ours.items()}
    assert {one.train.precision for name, one in settings.items() if "bf16" not in name} == {"tf32"}
    assert settings["characters-bf16"].train.precision == "bf16"
    corpora_read = {getattr(one.task, "corpus", None) for one in settings.values()}
    assert corpora_read == {None, "shakespeare", "speeches"}


def test_names_are_chosen_whole_before_parts(benchmarks):
    from scenarios import chosen

    names = ["lstm", "lstm-pack-64", "arithmetic-lstm", "characters"]
    assert chosen(names, "lstm,char") == ["lstm", "characters"]
    assert chosen(names, "pack,arith") == ["lstm-pack-64", "arithmetic-lstm"]
    assert chosen(names, "") == names
    with pytest.raises(SystemExit, match="no such name; there are lstm, "):
        chosen(names, "gpt")


def test_a_side_that_cannot_start_is_told_with_its_reason(benchmarks):
    from sides import Plan, Side, SideFailed, end

    side = Side(Plan("seedbed", "ours", {"model.dim": -1}))
    with pytest.raises(SideFailed, match=r"seedbed: (.|\n)*model\.gpt\.dim"):
        side.wait()
    end([side])


def test_what_cannot_be_checked_is_not_timed_and_the_rest_goes_on(benchmarks, monkeypatch, capsys):
    import bench
    from compare import Scenario

    from seedbed.errors import MissingData

    def differences(scenario, device):
        if scenario.name == "absent":
            raise MissingData("speeches is not here")
        if scenario.name == "broken":
            raise RuntimeError("out of memory")
        yield {"side": "plain", "difference": 1e-3, "agrees": scenario.name == "same"}

    monkeypatch.setattr(bench, "differences", differences)
    report = {"device": "cpu", "checks": [], "failed": []}
    some = [Scenario(name, "", "", 1, 0, []) for name in ("same", "absent", "broken", "other")]
    assert [one.name for one in some if bench.is_checked(one, report)] == ["same"]
    assert report["failed"] == ["broken", "other"]
    said = capsys.readouterr().out
    assert "absent is left out: speeches is not here" in said
    assert "RuntimeError: out of memory" in said


# ---- the shipped studies ----


def test_the_smallest_and_the_largest_run_of_each_kind_are_taken(benchmarks):
    from studies import ends

    from seedbed.study.plan import plan_named

    found = [
        (which, run.settings.model.kind, run.settings.model.layers, run.settings.model.dim)
        for which, run in ends(plan_named("arithmetic/model-size").runs)
    ]
    assert sorted(found) == [
        ("largest of 9", "gpt", 3, 256),
        ("largest of 9", "lstm", 3, 256),
        ("smallest of 9", "gpt", 1, 64),
        ("smallest of 9", "lstm", 1, 64),
    ]


def test_ours_is_the_very_pack_that_run_would_train(benchmarks, monkeypatch):
    import studies

    monkeypatch.setattr(studies, "probe_undecided", lambda *_: 0.0)
    case = next(case for case in studies.cases_of("arithmetic/compute") if len(case.pack.runs) > 1)
    plain, ours = case.scenario().sides
    assert ours.settings() == [run.settings for run in case.pack.runs]
    assert plain.settings() == [case.run.settings]
    assert (ours.n_processes, ours.threads) == (case.placement.workers, case.placement.threads)


def test_what_would_not_fit_into_memory_is_timed_in_smaller_batches_on_both_sides(benchmarks, corpora, monkeypatch):
    import studies

    from seedbed.models.model_size import estimate_training_bytes

    monkeypatch.setattr(studies, "probe_undecided", lambda *_: 0.0)
    monkeypatch.setattr(studies, "_memory", lambda: 8 * 2**30)
    case = max(studies.cases_of("characters/width"), key=lambda case: case.operations)
    batches = {plan.settings()[0].train.batch_size for plan in case.scenario().sides}
    assert batches == {case.batch}
    assert case.batch < case.run.settings.train.batch_size == 128
    held = (case.placement.workers + 1) * estimate_training_bytes(
        case.scenario().sides[0].settings()[0], case.run.facts
    )
    assert held <= 4 * 2**30 < 2.5 * held
    assert f"batch 128 × 128 (timed {case.batch})" in case.said()


def test_what_is_slower_and_what_is_left_out_is_said_with_the_reason(benchmarks, monkeypatch, capsys):
    import studies

    def compared(scenario, sides, n_rounds, seconds):
        _, ours = scenario.sides
        ratio = {"ratio": 0.9, "lowest": 0.8, "highest": 1.1, "processor_ratio": 0.95}
        plan = {"n_processes": ours.n_processes, "n_runs": ours.n_runs, "threads": ours.threads}
        return {"sides": [{"rate": 10.0}, {"rate": 9.0, "plan": plan, "against": {"plain": ratio}}]}

    monkeypatch.setattr(studies, "probe_undecided", lambda *_: 0.0)
    monkeypatch.setattr(studies, "start", lambda scenario: [])
    monkeypatch.setattr(studies, "compare", compared)
    lacking = {"lstm": "the plain loop has no train.ema"}
    monkeypatch.setattr(studies, "not_covered", lambda settings: lacking.get(settings.model.kind))
    report, kept = {}, []
    studies.time_studies(report, "arithmetic/sanity", lambda: kept.append(len(report["studies"])))
    (slow,), (out,) = report["studies"], report["left_out"]
    assert (slow["study"], slow["ratio"], out["reason"]) == ("arithmetic/sanity", 0.9, lacking["lstm"])
    assert len(kept) == 2
    said = capsys.readouterr().out
    assert "1 timed, 1 of them slower than a plain loop" in said
    assert "left out: the plain loop has no train.ema" in said


@pytest.mark.parametrize("dial", ["train.accumulate=2", "train.ema=0.9", "train.decay_parameters=matrices"])
def test_settings_that_cost_time_and_have_no_peer_are_named(benchmarks, dial):
    from loops import not_covered

    from seedbed.settings import Settings

    name, _, value = dial.partition("=")
    given = {"2": 2, "0.9": 0.9}.get(value, value)
    assert not_covered(Settings.from_flat({name: given})) == f"the plain loop has no {name}"
    assert not_covered(Settings()) is None
