"""Tables by value: report D's table 1, the pitfalls of averaging, and what each format must escape."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from math import inf, isfinite, nan
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from seedbed.records import Curve, ParameterCounts, RunStatus, StoredRun
from seedbed.report.summary_tables import config_tables
from seedbed.report.tables import (
    Table,
    format_accuracy,
    format_mean_std,
    format_steps,
    to_csv,
    to_latex,
    to_markdown,
    to_rich,
)
from seedbed.settings import Settings, Value
from seedbed.stats.comparison import summarise_seeds
from seedbed.stats.summary import RunCurves, summarise

# Report D's table 1 with two values by seed behind each mean ± std: metric → [(best value, t_f) of seeds 0 and 42].
REPORT_D = {
    "gpt": {
        "train/loss": [(1.409e-4, 9600), (1.611e-4, 9700)],
        "val/loss": [(4.689e-4, 9800), (6.511e-4, 10001)],
        "train/accuracy": [(1.0, 82), (1.0, 83)],
        "val/accuracy": [(1.0, 8700), (1.0, 8900)],
    },
    "lstm": {
        "train/loss": [(6.43e-5, 10001), (1.229e-4, 10001)],
        "val/loss": [(6.9e-4, 10001), (5.17e-3, 10001)],
        "train/accuracy": [(1.0, 200), (1.0, 400)],
        "val/accuracy": [(1.0, 8600), (1.0, 8800)],
    },
}


def run_curves(
    seed: int, curves: Mapping[str, Curve], config: Mapping[str, Value], status: RunStatus = "finished"
) -> RunCurves:
    run = StoredRun(f"{config}{seed}", seed, Settings.from_flat(config), ParameterCounts(7, 5), status, 10_001)
    return RunCurves(run, config, curves)


def curve_with_best(name: str, best: float, step: int) -> Curve:
    """A curve on the report's steps that attains `best` at `step` and keeps it to the final evaluation."""
    steps = np.array([*range(101), *range(200, 10_001, 100), 10_001, 10_002])
    return Curve(steps, np.where(steps >= step, best, 0.0 if "accuracy" in name else 3.4))


def report_d_runs() -> list[RunCurves]:
    return [
        run_curves(
            seed,
            {name: curve_with_best(name, *best[place]) for name, best in metrics.items()},
            {"model.kind": kind},
        )
        for kind, metrics in REPORT_D.items()
        for place, seed in enumerate((0, 42))
    ]


def constant_runs(
    configs: Sequence[Mapping[str, Value]], value: float = 0.5, seeds: Sequence[int] = (0,)
) -> list[RunCurves]:
    curve = Curve(np.array([0]), np.array([value]))
    names = [f"{split}/{quantity}" for split in ("train", "val") for quantity in ("loss", "accuracy")]
    return [run_curves(seed, dict.fromkeys(names, curve), config) for config in configs for seed in seeds]


def printed(table: Table, width: int, terminal: bool = False) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=terminal, color_system=None, record=True)
    console.print(to_rich(table))
    return console.export_text(styles=terminal)


def test_report_d_table_1_is_rebuilt() -> None:
    (table,) = config_tables(summarise(report_d_runs()))
    assert table.columns == ("metric", "GPT", "LSTM")
    assert table.rows == (
        ("L_train", "1.51e-4 ± 1.01e-5", "9.36e-5 ± 2.93e-5"),
        ("L_val", "5.60e-4 ± 9.11e-5", "2.93e-3 ± 2.24e-3"),
        ("A_train", "1.000 ± 0.000", "1.000 ± 0.000"),
        ("A_val", "1.000 ± 0.000", "1.000 ± 0.000"),
        ("L at chance", "1.72", "1.72"),
        ("A at chance", "0.032", "0.032"),
        ("t_f(L_train)", "9650 ± 50", "10001 ± 0"),
        ("t_f(L_val)", "9900.5 ± 100.5", "10001 ± 0"),
        ("t_f(A_train)", "82.5 ± 0.5", "300 ± 100"),
        ("t_f(A_val)", "8800 ± 100", "8700 ± 100"),
        ("Δt(L)", "250.5 ± 50.5", "0 ± 0"),
        ("Δt(A)", "8717.5 ± 99.5", "8400 ± 0"),
        ("t_90(A_train)", "82.5", "300"),
        ("t_90(A_val)", "8800", "8700"),
    )
    assert table.notes[:2] == ("n = 2 seeds: 0, 42.", "± is the population std over seeds (ddof 0).")


def test_only_a_visibly_better_mean_is_highlighted() -> None:
    (table,) = config_tables(summarise(report_d_runs()))
    assert table.best == {(0, 2), (1, 1)}  # accuracies are equal, steps have no best


def test_a_difference_hidden_by_rounding_is_not_highlighted() -> None:
    configs = [{"model.dim": dim} for dim in (8, 16)]
    runs = constant_runs(configs[:1], 0.50001) + constant_runs(configs[1:], 0.50002)
    assert config_tables(summarise(runs))[0].best == frozenset()


def test_a_larger_accuracy_and_a_smaller_loss_are_best_and_nan_never_is() -> None:
    configs = [{"model.dim": dim} for dim in (8, 16, 32)]
    runs = [
        run for config, value in zip(configs, (0.2, 0.9, nan), strict=True) for run in constant_runs([config], value)
    ]
    (table,) = config_tables(summarise(runs))
    assert {(table.rows[row][0], column) for row, column in table.best} == {
        ("L_train", 1), ("L_val", 1), ("A_train", 2), ("A_val", 2),
    }  # fmt: skip
    assert table.rows[0] == ("L_train", "0.2000", "0.9000", "NaN")


def test_a_diverged_run_shows_as_one_of_two() -> None:
    runs = report_d_runs()
    runs[1] = run_curves(42, runs[1].curves, runs[1].config, "diverged")
    (table,) = config_tables(summarise(runs))
    assert table.columns == ("metric", "GPT (n = 1 of 2)", "LSTM (n = 2)")
    assert table.rows[0][1] == "1.41e-4"  # of seed 0 alone, without a spread
    assert "Runs: 1 diverged, 3 finished." in table.notes


def test_a_running_study_says_so() -> None:
    runs = [run_curves(run.run.seed, run.curves, run.config, "running") for run in report_d_runs()]
    notes = config_tables(summarise(runs))[0].notes
    assert notes[:2] == ("n = 2 seeds: 0, 42.", "Runs: 4 running.")
    assert notes[2].startswith("Configs without a complete run are shown as far as all of their runs have got")


def test_one_seed_has_no_std_and_no_note_about_it() -> None:
    (table,) = config_tables(summarise(report_d_runs()[:1]))
    assert table.rows[6] == ("t_f(L_train)", "9600")
    assert table.notes[0] == "n = 1 seed: 0."
    assert not any("±" in note for note in table.notes)


def test_t_max_is_in_the_notes() -> None:
    (table,) = config_tables(summarise(report_d_runs(), t_max=5000), t_max=5000)
    assert "Only evaluations up to step 5000 count." in table.notes
    assert table.rows[3][1] == "0.000 ± 0.000"


def test_nothing_gives_no_table_and_nothing_recorded_gives_a_sentence() -> None:
    assert config_tables([]) == []
    (table,) = config_tables(summarise([run_curves(0, {}, {"model.kind": "gpt"}, "planned")]))
    assert table.columns == ("metric", "GPT (n = 0 of 1)")
    assert table.notes[1:] == ("Runs: 1 planned.", "Nothing is recorded yet.")
    many = [run_curves(0, {}, {"model.dim": 8 * dim}, "planned") for dim in range(1, 6)]
    assert [table.columns for table in config_tables(summarise(many))] == [("width", "n")]


def test_groups_are_further_rows() -> None:
    curve = Curve(np.array([0]), np.array([0.5]))
    names = ["val/accuracy[order=3]", "val/accuracy[order=2]", "val/accuracy", "norm"]
    (table,) = config_tables(summarise([run_curves(0, dict.fromkeys(names, curve), {})]))
    assert [row[0] for row in table.rows] == [
        "A_val", "A at chance", "t_f(A_val)",
        "A_val[order=2]", "A_val[order=3]", "t_f(A_val[order=2])", "t_f(A_val[order=3])",
    ]  # fmt: skip


def test_headings_are_the_varied_settings_with_short_names_if_unambiguous() -> None:
    configs = [
        {"model.kind": "gpt", "model.layers": 2, "train.lr": 0.001, "task.orders": (2, 3), "model.tied": True},
        {"model.kind": "lstm", "model.layers": 1, "train.lr": 1.0, "task.orders": (2,), "model.tied": False},
    ]
    (table,) = config_tables(summarise(constant_runs(configs)))
    assert table.columns[1:] == (
        "GPT, 2 layers, learning rate 0.001, operands per equation [2, 3], tied embeddings on",
        "LSTM, 1 layer, learning rate 1, operands per equation [2], tied embeddings off",
    )
    clash = [{"model.kind": "gpt", "task.kind": "arithmetic"}]
    assert config_tables(summarise(constant_runs(clash)))[0].columns[1] == "GPT, arithmetic task"
    assert config_tables(summarise(constant_runs([{}])))[0].columns == ("metric", "all")


def test_five_configs_are_rows_of_a_table_of_values_and_one_of_steps() -> None:
    configs = [{"model.kind": "gpt", "model.dim": 8 * dim} for dim in range(1, 5)] + [{"model.kind": "lstm"}]
    values, steps = config_tables(summarise(constant_runs(configs, seeds=(0, 1, 2, 42))))
    assert values.columns == ("model", "width", "L_train", "L_val", "A_train", "A_val")
    assert values.rows[0] == ("GPT", "8", "0.5000 ± 0.0000", "0.5000 ± 0.0000", "0.500 ± 0.000", "0.500 ± 0.000")
    assert values.rows[4][:2] == ("LSTM", "–")
    assert steps.columns[2:] == ("t_f(L_train)", "t_f(L_val)", "t_f(A_train)", "t_f(A_val)", "Δt(L)", "Δt(A)")
    assert values.notes[0] == "n = 4 seeds: 0–2, 42."


def test_many_configs_show_n_in_a_column_if_it_differs_and_highlight_the_best_of_each_column() -> None:
    runs = constant_runs([{"model.dim": 8 * dim} for dim in range(1, 6)], 0.5, seeds=(0, 1))
    winner = constant_runs([{"model.dim": 24}], 0.25, seeds=(0,))[0]
    runs[4:6] = [winner, run_curves(1, {}, {"model.dim": 24}, "failed")]
    values, _ = config_tables(summarise(runs))
    assert [row[:3] for row in values.rows][1:3] == [("16", "2", "0.5000 ± 0.0000"), ("24", "1 of 2", "0.2500")]
    assert values.best == {(2, 2), (2, 3)}


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.409e-4, 1.611e-4], "1.51e-4 ± 1.01e-5"),
        ([0.0099], "9.90e-3"),
        ([0.01], "0.0100"),
        ([3.4339, 3.4341], "3.434 ± 0.000"),
        ([12.345], "12.35"),
        ([54321.0, 54323.0], "54322 ± 1"),
        ([1.5e20], "1.50e20"),
        ([0.0, 0.0], "0 ± 0"),
        ([1e-3, 1e-3], "1.00e-3 ± 0"),
        ([nan, 1.0], "NaN"),
        ([inf, 1.0], "inf"),
        ([], "–"),
    ],
)
def test_values_are_formatted_by_their_size(values: list[float], text: str) -> None:
    assert format_mean_std(summarise_seeds(dict(enumerate(values)))) == text


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([9800, 10001], "9900.5 ± 100.5"),
        ([100, 100], "100 ± 0"),
        ([1, 2, 2], "1.7 ± 0.5"),
        ([-4, -3], "-3.5 ± 0.5"),
        ([123456], "123456"),
        ([nan], "NaN"),
    ],
)
def test_steps_are_integers_unless_the_mean_is_not(values: list[float], text: str) -> None:
    assert format_steps(summarise_seeds(dict(enumerate(values)))) == text


def test_accuracies_have_three_decimals() -> None:
    assert format_accuracy(summarise_seeds({0: 1.0, 1: 479 / 480})) == "0.999 ± 0.001"


NASTY = Table(
    title="a_b & c",
    columns=("[key]", "50% |x|"),
    rows=(("=1+1", "-3.5 ± 0.5"), ("+", '=HYPERLINK("x")'), ("line\nbreak\x1b[31m", "*{~^\\}$#*")),
    notes=("x_ < y",),
    best=frozenset({(0, 1)}),
)


def test_markdown_keeps_every_cell_in_its_column() -> None:
    lines = to_markdown(NASTY).splitlines()
    assert lines[0] == "**a_b & c**"
    assert lines[2:5] == ["| [key] | 50% \\|x\\| |", "| :--- | ---: |", "| =1+1 | **-3.5 ± 0.5** |"]
    assert lines[6] == "| line break [31m | \\*{~^\\\\}$#\\* |"
    assert lines[-1] == "x\\_ \\< y"


def test_csv_neutralises_formulas_and_leaves_numbers_and_lone_signs() -> None:
    assert list(csv.reader(io.StringIO(to_csv(NASTY)))) == [
        ["[key]", "50% |x|", "50% |x| std"],
        ["'=1+1", "-3.5", "0.5"],
        ["+", '\'=HYPERLINK("x")', ""],
        ["line break [31m", "*{~^\\}$#*", ""],
    ]


@pytest.mark.parametrize("cell", ["@SUM(A1)", "+1+1", "-2+3", "\t=1", " =1", "\r=1", "＝1+1", "-1 ± 1|cmd"])
def test_every_start_of_a_formula_is_neutralised(cell: str) -> None:
    assert to_csv(Table("", (cell,), ())).startswith(("'", "\"'"))


@pytest.mark.parametrize("cell", ["-3.5", "+7", "-1.5e-04 ± 2.0e-05", "1e+20", "–", "gpt", "a=b"])
def test_numbers_and_plain_text_are_unchanged_in_csv(cell: str) -> None:
    assert to_csv(Table("", (cell,), ())) == f"{cell}\n"


def test_latex_escapes_special_characters_and_protects_a_leading_bracket() -> None:
    latex = to_latex(NASTY)
    assert r"\caption{a\_b \& c}" in latex
    assert r"{[}key] & 50\% |x| \\" in latex
    assert r"=1+1 & \textbf{$-3.5 \pm 0.5$} \\" in latex
    assert r"*\{\textasciitilde{}\textasciicircum{}\textbackslash{}\}\$\#* \\" in latex
    assert r"\begin{tabular}{lr}" in latex
    assert r"\par{\footnotesize x\_ $<$ y}" in latex


def test_csv_has_numbers_as_numbers_with_std_interval_and_n_apart() -> None:
    cells = ("1,150 [900, 2,100] (7/8)", "–", "> 152 (0/2)", "−3.5 ± 0.5")
    table = Table("", ("width", "t_90"), tuple((str(width), cell) for width, cell in enumerate(cells)), n_seeds=8)
    assert list(csv.reader(io.StringIO(to_csv(table)))) == [
        ["width", "t_90", "t_90 std", "t_90 low", "t_90 high", "t_90 n", "n"],
        ["0", "1150", "", "900", "2100", "7", "8"],
        ["1", "", "", "", "", "", "8"],
        ["2", "", "", "", "", "0", "8"],
        ["3", "-3.5", "0.5", "", "", "", "8"],
    ]


def test_the_table_of_best_values_is_numbers_in_csv() -> None:
    (table,) = config_tables(summarise(report_d_runs()))
    head, *rows = csv.reader(io.StringIO(to_csv(table)))
    assert head[0] == "metric"
    assert head[-1] == "n"
    assert all(name.endswith(" std") for name in head[2:-1:2])
    for row in rows:
        assert all(cell == "" or isfinite(float(cell)) for cell in row[1:]), row


@pytest.mark.parametrize(
    ("cell", "latex"),
    [
        ("L_train", r"$L_{\mathrm{train}}$"),
        ("PPL_val", r"$\mathrm{PPL}_{\mathrm{val}}$"),
        ("t_f(A_val)", r"$t_f(A_{\mathrm{val}})$"),
        ("t_90(A_val[order=2])", r"$t_{90}(A_{\mathrm{val}})$ {[}order=2]"),
        ("Δt(L)", r"$\Delta t(L)$"),
        ("‖θ‖₂", r"$\|\theta\|_2$"),
        ("1.51e-4 ± 1.01e-5", r"$1.51\times 10^{-4} \pm 1.01\times 10^{-5}$"),
        ("> 152 (0/2)", r"$> 152 (0/2)$"),
        ("weight_decay", r"weight\_decay"),
    ],
)
def test_symbols_and_numbers_are_mathematics_in_latex(cell: str, latex: str) -> None:
    assert f"\n{latex} \\\\\n" in to_latex(Table("", ("value",), ((cell,),)))


@pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="LaTeX is not installed (Debian: texlive-latex-recommended)"
)
def test_latex_tables_compile(tmp_path: Path) -> None:
    configs = [{"model.kind": kind, "model.dim": dim} for kind in ("gpt", "lstm") for dim in (8, 16, 24)]
    sentences = [("We must be free, and we will be free " * 3, "G. H. W. Bush (2)", "Obama (0)", "0.351", "2 of 2")] * 2
    errors = Table(
        "Errors", ("text", "class", "predicted", "probability", "seeds that err"), tuple(sentences), n_labels=3
    )
    tables = [NASTY, errors, *config_tables(summarise(constant_runs(configs, 1.51e-4, seeds=(0, 42))))]
    body = "\n".join(map(to_latex, tables))
    document = f"\\documentclass{{article}}\n\\usepackage{{booktabs}}\n\\begin{{document}}\n{body}\n\\end{{document}}\n"
    (tmp_path / "tables.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "tables.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-1500:]
    assert "Overfull" not in done.stdout


def test_text_is_bold_in_a_terminal_and_starred_elsewhere() -> None:
    (table,) = config_tables(summarise(report_d_runs()))
    assert "*9.36e-5 ± 2.93e-5" in printed(table, 80)
    in_terminal = printed(table, 80, terminal=True)
    assert "\x1b[1m9.36e-5 ± 2.93e-5" in in_terminal
    assert "*" not in in_terminal


def test_text_shows_brackets_and_no_control_characters() -> None:
    text = printed(NASTY, 80)
    assert "[key]" in text
    assert "\x1b" not in text
    assert "line break [31m" in text


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_text_fits_the_console_without_cutting_or_wrapping_a_cell(width: int) -> None:
    configs = [
        {"model.kind": kind, "model.layers": layers, "model.dim": 128}
        for kind in ("gpt", "lstm")
        for layers in (1, 2, 3)
    ]
    runs = constant_runs(configs, 1.51e-4, seeds=(0, 42))
    for tables in (config_tables(summarise(runs)), config_tables(summarise(runs[:8]))):
        for table in tables:
            text = printed(table, width)
            assert max(map(len, text.splitlines())) <= width
            assert "…" not in text
            assert all(
                text.count(cell) >= sum(row.count(cell) for row in table.rows) for row in table.rows for cell in row[3:]
            )


def test_six_configs_of_three_settings_take_one_grid_each_at_100_columns() -> None:
    configs = [
        {"model.kind": kind, "model.layers": layers, "model.dim": 128}
        for kind in ("gpt", "lstm")
        for layers in (1, 2, 3)
    ]
    tables = config_tables(summarise(constant_runs(configs, 1.51e-4, seeds=(0, 42))))
    assert [printed(table, 100).count("model") for table in tables] == [1, 1]
    assert printed(tables[0], 60).count("model") == 2
