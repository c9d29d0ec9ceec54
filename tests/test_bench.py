"""`make bench` runs, compares only equal functions, and writes readable results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from seedbed.records import EvaluationEvent
from tests.corpora import require_corpora

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
    require_corpora()


def test_a_quick_run_writes_ratios_and_the_environment(tmp_path):
    out = tmp_path / "figures.json"
    command = [sys.executable, BENCHMARKS / "bench.py", "--quick", "--only", "arithmetic-gpt", "--out", out]
    environment = os.environ | {
        "OMP_WAIT_POLICY": "passive"
    }  # or waiting threads would occupy the cores of other tests
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
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
    assert f"{1e6 / rows['plain']['rate']:,.1f} µs per model and step" in done.stdout


@pytest.mark.parametrize("overrides", PEERS.values(), ids=PEERS)
def test_every_peer_computes_the_same_function_as_ours(benchmarks, request, overrides):
    import check

    from seedbed.settings import Settings

    if overrides.get("task.kind") == "labels":
        request.getfixturevalue("corpora")
    torch.manual_seed(0)  # the check draws new weights each time, and some of them round worse than others
    assert check.relative_difference("plain", Settings.from_flat(overrides), "cpu") < 1e-11


@pytest.mark.parametrize(("kind", "last"), [("gpt", "head"), ("lstm", "head"), ("encoder", "labels")])
def test_a_peer_that_computes_another_function_is_detected(benchmarks, request, kind, last, monkeypatch):
    import check
    import peers

    from seedbed.settings import Settings

    if kind == "encoder":
        request.getfixturevalue("corpora")
    small = {"model.kind": kind, "model.dim": 8, "model.layers": 1, "task.p": 11}
    settings = Settings.from_flat(ENCODER if kind == "encoder" else small)
    assert check.relative_difference("plain", settings, "cpu") < check.MAX_RELATIVE_DIFFERENCE

    def slightly_different_model(settings):
        model = peers.plain_model(settings)
        getattr(model, last).register_forward_hook(lambda _, __, logits: logits * (1 + 1e-6))
        return model

    monkeypatch.setitem(peers.MODELS, "plain", slightly_different_model)
    assert check.relative_difference("plain", settings, "cpu") > check.MAX_RELATIVE_DIFFERENCE


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam", "adamw"])
def test_the_plain_loops_optimizer_equals_ours(benchmarks, kind):
    import torch
    from loops import make_optimizer

    from seedbed.models.layers import LayerNorm
    from seedbed.models.parameters import FlatParameters
    from seedbed.settings import TrainSettings
    from seedbed.training.optimizers import make_optimizer as make_ours

    overrides = TrainSettings(optimizer=kind, lr=0.03, weight_decay=0.2, clip=0.0, betas=(0.8, 0.9), momentum=0.7)
    parameters = FlatParameters(LayerNorm(16), 1, torch.device("cpu"), torch.float64)
    parameters.weights.normal_()
    theirs = torch.nn.Parameter(parameters.weights[0].clone())
    ours, plain = make_ours([overrides], parameters), make_optimizer([theirs], overrides)
    for _ in range(3):
        theirs.grad = parameters.gradients.normal_()[0].clone()
        ours.step(*ours.next_hyperparameters(ours.lr))
        plain.step()
    torch.testing.assert_close(parameters.weights[0], theirs.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_scenarios_are_complete_and_compare_like_with_like(benchmarks, corpora, device):
    from growth import make_growths
    from scenarios import scenarios

    found = scenarios(device, quick=False)
    assert len({one.name for one in found}) == len(found)
    for one in found:
        assert len({plan.name for plan in one.sides}) == len(one.sides)
        sides = [plan for plan in one.sides if plan.kind != "matmul"]
        assert {"ours", "plain"} <= {plan.kind for plan in sides}
        assert {plan.device for plan in one.sides} == {device}
        assert len({plan.settings()[0] for plan in sides}) == 1
    assert [growth.name for growth in make_growths(device, quick=False)] == ["R", "width", "length"]


def test_gpu_scenarios_use_the_modes_packs_and_corpora_of_a_long_study(benchmarks, corpora):
    from scenarios import scenarios

    ours = {
        (one.name, plan.n_runs): plan for one in scenarios("cuda", False) for plan in one.sides if plan.kind == "ours"
    }
    assert {("arithmetic-gpt", 128), ("classifiers", 256), ("characters", 8), ("characters-bf16", 1)} <= ours.keys()
    assert {ours[key].mode for key in ours if not key[0].startswith("lstm")} == {"compiled"}
    assert {ours["lstm", 1].mode, ours["lstm-pack-128", 64].mode, ours["lstm-pack-64", 64].mode} == {"graph"}
    settings = {name: plan.settings()[0] for (name, _), plan in ours.items()}
    assert {one.train.precision for name, one in settings.items() if "bf16" not in name} == {"tf32"}
    assert settings["characters-bf16"].train.precision == "bf16"
    corpora_used = {getattr(one.task, "corpus", None) for one in settings.values()}
    assert corpora_used == {None, "shakespeare", "speeches"}


def test_exact_names_are_selected_before_partial_matches(benchmarks):
    from scenarios import select_names

    names = ["lstm", "lstm-pack-64", "arithmetic-lstm", "characters"]
    assert select_names(names, "lstm,char") == ["lstm", "characters"]
    assert select_names(names, "pack,arith") == ["lstm-pack-64", "arithmetic-lstm"]
    assert select_names(names, "") == names
    with pytest.raises(SystemExit, match="no such name; there are lstm, "):
        select_names(names, "gpt")


def test_a_side_that_cannot_start_is_reported_with_its_reason(benchmarks):
    from sides import Side, SideError, SideSpec, stop_sides

    side = Side(SideSpec("seedbed", "ours", {"model.dim": -1}))
    with pytest.raises(SideError, match=r"seedbed: (.|\n)*model\.dim"):
        side.wait_until_ready()
    stop_sides([side])


def test_a_scenario_that_cannot_be_checked_is_skipped(benchmarks, monkeypatch, capsys):
    import bench
    from compare import Scenario

    from seedbed.errors import MissingData

    def compute_differences(scenario, device):
        if scenario.name == "absent":
            raise MissingData("speeches is not here")
        if scenario.name == "broken":
            raise RuntimeError("out of memory")
        yield {"side": "plain", "difference": 1e-3, "agrees": scenario.name == "same"}

    monkeypatch.setattr(bench, "compute_differences", compute_differences)
    report = {"device": "cpu", "checks": [], "failed": []}
    scenarios = [Scenario(name, "", "", 1, 0, []) for name in ("same", "absent", "broken", "other")]
    assert [one.name for one in scenarios if bench.passes_check(one, report)] == ["same"]
    assert report["failed"] == ["broken", "other"]
    out = capsys.readouterr().out
    assert "absent skipped: speeches is not here" in out
    assert "RuntimeError: out of memory" in out


# ---- the shipped studies ----


def test_the_smallest_and_the_largest_run_of_each_kind_are_selected(benchmarks):
    from studies import smallest_and_largest

    from seedbed.study.plan import plan_named

    found = [
        (which, run.settings.model.kind, run.settings.model.layers, run.settings.model.dim)
        for which, run in smallest_and_largest(plan_named("arithmetic/model-size").runs)
    ]
    assert sorted(found) == [
        ("largest of 9", "gpt", 3, 256),
        ("largest of 9", "lstm", 3, 256),
        ("smallest of 9", "gpt", 1, 64),
        ("smallest of 9", "lstm", 1, 64),
    ]


def test_ours_is_the_pack_that_run_would_train(benchmarks, monkeypatch):
    import studies

    monkeypatch.setattr(studies, "probe_candidates", lambda *_: 0.0)
    case = next(case for case in studies.make_cases("arithmetic/compute") if len(case.pack.runs) > 1)
    plain, ours = case.scenario().sides
    assert ours.settings() == [run.settings for run in case.pack.runs]
    assert plain.settings() == [case.run.settings]
    assert (ours.n_processes, ours.threads) == (case.placement.workers, case.placement.threads)


def test_runs_that_do_not_fit_into_memory_are_timed_in_smaller_batches_on_both_sides(benchmarks, corpora, monkeypatch):
    import studies

    from seedbed.models.model_size import estimate_training_bytes

    monkeypatch.setattr(studies, "probe_candidates", lambda *_: 0.0)
    monkeypatch.setattr(studies, "_machine_memory", lambda: 8 * 2**30)
    case = max(studies.make_cases("characters/width"), key=lambda case: case.flops)
    batches = {plan.settings()[0].train.batch_size for plan in case.scenario().sides}
    assert batches == {case.batch_size}
    assert case.batch_size < case.run.settings.train.batch_size == 128
    estimated_bytes = (case.placement.workers + 1) * estimate_training_bytes(
        case.scenario().sides[0].settings()[0], case.run.dataset_info
    )
    assert estimated_bytes <= 4 * 2**30 < 2.5 * estimated_bytes
    assert f"batch 128 × 128 (timed {case.batch_size})" in case.describe()


def test_slower_and_skipped_runs_are_reported_with_the_reason(benchmarks, monkeypatch, capsys):
    import studies

    def compared(scenario, sides, n_rounds, seconds):
        _, ours = scenario.sides
        ratio = {"ratio": 0.9, "lowest": 0.8, "highest": 1.1, "processor_ratio": 0.95}
        plan = {"n_processes": ours.n_processes, "n_runs": ours.n_runs, "threads": ours.threads}
        return {"sides": [{"rate": 10.0}, {"rate": 9.0, "plan": plan, "against": {"plain": ratio}}]}

    monkeypatch.setattr(studies, "probe_candidates", lambda *_: 0.0)
    monkeypatch.setattr(studies, "start_sides", lambda scenario: [])
    monkeypatch.setattr(studies, "compare", compared)
    reasons = {"lstm": "the plain loop has no train.ema"}
    monkeypatch.setattr(studies, "find_unsupported_setting", lambda settings: reasons.get(settings.model.kind))
    report, saves = {}, []
    studies.time_studies(report, "arithmetic/sanity", lambda: saves.append(len(report["studies"])))
    (slow,), (skipped,) = report["studies"], report["left_out"]
    assert (slow["study"], slow["ratio"], skipped["reason"]) == ("arithmetic/sanity", 0.9, reasons["lstm"])
    assert len(saves) == 2
    out = capsys.readouterr().out
    assert "1 timed, 1 of them slower than a plain loop" in out
    assert "skipped: the plain loop has no train.ema" in out


@pytest.mark.parametrize("setting", ["train.accumulate=2", "train.ema=0.9", "train.decay_parameters=matrices"])
def test_unsupported_settings_are_named(benchmarks, setting):
    from loops import find_unsupported_setting

    from seedbed.settings import Settings

    name, _, value = setting.partition("=")
    given = {"2": 2, "0.9": 0.9}.get(value, value)
    assert find_unsupported_setting(Settings.from_flat({name: given})) == f"the plain loop has no {name}"
    assert find_unsupported_setting(Settings()) is None


def test_every_family_optimizer_and_position_encoding_runs_in_bf16(benchmarks, corpora, capsys):
    """The smallest size of each structure that a shipped study or a command can ask for, by autocast on the CPU."""
    import combinations as script

    assert script.check_all("cpu", small=True, precisions=["bf16"], modes=["plain"], packs_only=True) == []
    lines = capsys.readouterr().out
    for expected in ("encoder", "gpt", "gru", "lstm", "muon", "wikitext", "characters", "speeches", "arithmetic"):
        assert f" {expected}" in lines


@pytest.mark.parametrize("mode", ["compiled", "graph"])
def test_a_combination_runs_in_the_modes_of_a_gpu(mode, benchmarks, capsys):
    import combinations as script

    assert script.check_all("cpu", "quickstart", small=True, modes=[mode]) == []
    assert capsys.readouterr().out.count("ok") == 6


def test_a_combination_that_differs_from_fp32_is_reported(benchmarks, monkeypatch, capsys):
    """Negative control: losses that are 5 % off."""
    import combinations as script

    original = script.train_pack

    def distorted(settings, seeds, placement):
        for event in original(settings, seeds, placement):
            if isinstance(event, EvaluationEvent) and settings[0].train.precision == "bf16":
                event.values[:] *= 1.05
            yield event

    monkeypatch.setattr(script, "train_pack", distorted)
    failed = script.check_all("cpu", "quickstart", small=True, modes=["plain"])
    assert len(failed) == 2
    assert all("bf16" in line for line in failed)
    assert "in fp32" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("study", "overrides"),
    [
        ("quickstart", ["model.dim=8", "model.heads=2", "seeds=2", "train.weight_decay=0.1"]),
        ("speeches/classifier", ["scale=tiny"]),
        ("wikitext/depth", ["scale=tiny", "model.layers=1"]),
        ("characters/shakespeare", ["scale=tiny", "train.sample_every=2", "train.sample_tokens=3", "seeds=1"]),
    ],
)
def test_whole_runs_are_timed_against_a_loop_with_the_same_work(study, overrides, benchmarks, corpora, capsys):
    from whole_runs import time_whole_runs

    report = {}
    time_whole_runs(report, study, "cpu", save=lambda: None, n_steps=4, overrides=overrides)
    (row,) = [row for row in report["whole_runs"] if row["study"] == study]
    assert row["n_steps"] == 4
    assert row["ratio"] > 0
    expected = {"compute", "evaluate", "save"} | ({"write"} if "characters" in study else set())
    assert row["theirs"]["seconds"].keys() == expected
    assert expected <= row["ours"]["seconds"].keys()
    assert row["ours"]["wall"] > row["ours"]["compile"]
    assert capsys.readouterr().out.startswith(study)


@pytest.mark.parametrize(
    ("positions", "lengths"), [("learned", {32}), ("alibi", {32, 64, 128}), ("rotary", {32, 64, 128})]
)
def test_a_plain_loop_evaluates_windows_as_long_as_its_model_can_process(positions, lengths, benchmarks, corpora):
    from plain_loops import PlainLoop

    from seedbed.study.plan import plan_named

    few = ["scale=tiny", "seeds=1", "train.batch_size=2", "train.eval_batches=1"]
    plan = plan_named("speeches/alibi", [*few, f"model.positions={positions}"])
    (run,) = [run for run in plan.runs if run.settings.model.kind == "gpt"]
    loop = PlainLoop(run, "cpu")
    assert {inputs.shape[1] for inputs, _ in loop.eval_batches} == lengths


def test_a_part_of_a_samples_tokens_is_drawn_with_the_contexts_of_all(benchmarks, corpora, monkeypatch):
    import plain_loops

    from seedbed.study.plan import plan_named

    (run,) = plan_named(
        "characters/shakespeare",
        ["scale=tiny", "seeds=1", "task.length=10", "train.sample_every=2", "train.sample_tokens=18"],
    ).runs
    loop = plain_loops.PlainLoop(run, "cpu")
    lengths = []
    loop.model.register_forward_pre_hook(lambda _, inputs: lengths.append(inputs[0].shape[1]))
    monkeypatch.setattr(loop, "update", lambda batch: None)
    monkeypatch.setattr(loop, "evaluate", lambda: None)
    monkeypatch.setattr(loop, "seconds", lambda action, n=1: action() or 1.0)
    seconds = loop.time()
    assert lengths == [1, 5, 9, 10, 10]
    assert seconds["write"] == pytest.approx(18 / 5 * run.settings.train.samples)


def test_a_plain_loop_scores_the_tokens_of_each_sum_of_another_length(benchmarks):
    from loops import IGNORE_INDEX, make_dataset
    from plain_loops import PlainLoop

    from seedbed.study.plan import plan_named

    run, _ = plan_named("addition", ["seeds=1", "task.digits=1", "task.equations=100", "model.dim=8"]).runs
    vocabulary, eval_batches = run.settings.task.vocabulary(), PlainLoop(run, "cpu").eval_batches
    evaluated = [sample for batch in eval_batches for sample in zip(*batch, strict=True)]
    for samples in (make_dataset(run.settings.task), evaluated):
        scored = {}
        for inputs, targets in samples:
            equation = "".join(vocabulary[token] for token in inputs[1:4])
            scored[equation] = [vocabulary[token] for token in targets if token != IGNORE_INDEX]
        sums = {equation: sum(map(int, equation.split("+"))) for equation in scored}
        assert scored == {equation: [*str(value), "EOS"] for equation, value in sums.items()}
        assert len({len(tokens) for tokens in scored.values()}) == 2


@pytest.fixture
def plain_loops_that_fail(benchmarks, monkeypatch):
    """Plain loops of LSTMs cannot be compiled, those of the widest GPTs not be timed."""
    import whole_commands

    class Loop:
        compile_seconds = 9.0

        def __init__(self, run, device):
            self.settings = run.settings
            if run.settings.model.kind == "lstm":
                raise IndexError("index out of range\nin self")

        def time(self):
            if self.settings.model.dim == 256:
                raise RuntimeError("device-side assert")
            return {"compute": 0.5, "compute, one batch": 0.25, "evaluate": 1.0, "save": 2.0}

    monkeypatch.setattr(whole_commands, "PlainLoop", Loop)


def test_a_loop_that_fails_is_reported_and_the_others_are_compared(plain_loops_that_fail, capsys):
    import whole_commands as script
    from plain_loops import plain_loop_key

    from seedbed.study.plan import plan_named

    plan = plan_named("arithmetic/model-size", ["train.steps=8", "train.eval_every=4", "seeds=2"])
    loops = {plain_loop_key(run): script.time_loop(script.compile_loop(run, "cpu")) for run in plan.runs}
    gpts = [run for run in plan.runs if run.settings.model.kind == "gpt"]
    timed = [run for run in gpts if run.settings.model.dim < 256]
    before, unfinished, *trained = timed
    shares = {run.id: 2.0 for run in plan.runs if run is not unfinished}
    row = {"command": "seedbed run arithmetic/model-size", "wall": 34.0, "exit_code": 6, "missing": [], "studies": {}}
    script.compare_command(row, [plan], shares, {before.id}, loops)
    study = row["studies"]["arithmetic/model-size"]
    n_steps, n_all = plan.runs[0].settings.n_steps(), len(plan.runs)
    assert study["runs"] == len(trained)
    assert study["theirs"]["compute"] == len(trained) * (n_steps - 1) * 0.5
    assert study["ours"] == pytest.approx(34.0 * len(trained) / (n_all - 2))
    assert study["ratios"]["compute, one batch"] < study["ratios"]["compute"]
    assert set(row["missing"]) == {
        f"arithmetic/model-size: {n_all - len(gpts)} runs: IndexError: index out of range",
        f"arithmetic/model-size: {len(gpts) - len(timed)} runs: RuntimeError: device-side assert",
        "arithmetic/model-size: 1 runs: not trained to the end",
        "1 runs were in the home before",
    }
    script.print_table([row])
    out = capsys.readouterr().out
    assert "not compared: arithmetic/model-size" in out
    assert "compute: median of 1 studies" in out


def test_a_process_that_dies_loses_only_its_own_loops(benchmarks):
    import whole_commands as script
    from plain_loops import plain_loop_key

    from seedbed.study.plan import plan_named

    first, second = (plan_named("quickstart", [f"model.dim={dim}", "seeds=1"]).runs[0] for dim in (8, 12))
    processes = [script.LoopProcess([run], "cpu") for run in (first, second)]
    processes[0].process.kill()
    loops = script.time_loops(processes)
    assert loops[plain_loop_key(first)]["error"] == "its process ended with exit code -9"
    assert loops[plain_loop_key(second)]["seconds"]["compute"] > 0


def test_whole_commands_are_compared_study_by_study(benchmarks, tmp_path, monkeypatch, capsys):
    import whole_commands

    command = "quickstart addition model.dim=8 model.heads=2 train.steps=30 train.eval_every=10 seeds=2"
    out, home = tmp_path / "figures.json", tmp_path / "home"
    options = ["--loops", "quick*", "--also", "addition seeds=1", "--processes", "1", "--home", home, "--out", out]
    monkeypatch.setattr(sys, "argv", ["whole_commands.py", command, *map(str, options)])
    whole_commands.main()
    report = json.loads(out.read_text())
    (row,) = report["commands"]
    assert row["exit_code"] == 0, (tmp_path / "command-0.log").read_text()
    study = row["studies"].pop("quickstart")
    assert row["studies"] == {}
    assert row["missing"] == ["addition: 4 runs: its loop was not asked for"]
    assert 0 < study["ours"] < row["wall"]
    assert study["ratios"]["compute"] > 0
    assert report["also"]["addition"]["runs"] == 2
    printed = capsys.readouterr().out
    assert "  quickstart                    2 runs: ours" in printed
    assert "addition                      2 runs: theirs" in printed
