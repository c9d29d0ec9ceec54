"""The HTML report: self-contained, in order, safe, reproducible, and explicit about what is missing."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from math import nan
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seedbed.charts import render
from seedbed.cli import app
from seedbed.data.suffix_array import SuffixArray
from seedbed.errors import MissingData, UsageError
from seedbed.report import html_report
from seedbed.report.figures import plot_command
from seedbed.report.html_report import find_browser, write_pdf, write_report
from seedbed.report.memorization_curves import mark_pieces
from seedbed.report.tables import Table, split_to_width
from seedbed.specs import FigureSpec
from seedbed.store import open_store

from .factories import fill

QUESTIONS = """
[[questions]]
ask = "which is better"
text = "Which weight decay is better?"
metric = "val/loss"
between = "train.weight_decay"

[[figures]]
title = "Both weight decays"
metrics = ["train/loss", "val/loss"]
colour = "train.weight_decay"
"""


@pytest.fixture(autouse=True)
def _fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fixed date, small pictures, and a stub for the JavaScript that draws charts in a page."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setattr(render, "PNG_SCALE", 0.5)
    monkeypatch.setattr(html_report, "vega_javascript", lambda: "window.vegaEmbed = () => Promise.resolve();")


def visible_text(text: str) -> str:
    """The text of a page that a reader sees."""
    bare = re.sub(r"<(script|style|svg).*?</\1>", " ", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", bare)))


def test_a_report_goes_from_question_to_how_to_reproduce_it(tmp_path: Path) -> None:
    fill(tmp_path, shown=QUESTIONS)
    index = write_report(tmp_path, ["toy"], [])
    assert index == tmp_path / "reports" / "toy" / "index.html"
    text = visible_text(index.read_text(encoding="utf-8"))
    parts = [
        "Does it work?", "Answers", "Which weight decay is better?", "Figures Figure 1. Both weight decays",
        "n = 2 seeds", "Tables", "L_val", "Cost of a run", "How to reproduce it",
        "seedbed run studies/toy.toml", "abacus", "Data", "Settings",
    ]  # fmt: skip
    positions = [text.index(part) for part in parts]
    assert positions == sorted(positions)
    written = {path.relative_to(index.parent).as_posix() for path in index.parent.rglob("*") if path.is_file()}
    tables = {f"tables/table-0{number}.{end}" for number in (1, 2, 3, 4) for end in ("csv", "md", "tex")}
    figures = {f"figures/figure-01.{end}" for end in ("svg", "pdf", "png", "json")}
    assert written == {"index.html", "studies/toy.toml"} | figures | tables


def test_the_page_loads_nothing_and_can_be_read_without_scripts(tmp_path: Path) -> None:
    fill(tmp_path)
    text = write_report(tmp_path, ["toy"], []).read_text(encoding="utf-8")
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    links = re.findall(r"(?:src|href)=\"([^\"]+)\"", text)
    assert all(link.startswith(("figures/", "tables/", "studies/", "#")) for link in links)
    assert text.count("<svg") == text.count('class="live"') >= 2
    assert '<html lang="en" dir="ltr">' in text


def test_the_specs_in_the_page_are_complete(tmp_path: Path) -> None:
    fill(tmp_path)
    text = write_report(tmp_path, ["toy"], []).read_text(encoding="utf-8")
    specs = [json.loads(spec) for spec in re.findall(r'id="figure-\d+-spec">(.*?)</script>', text)]
    assert specs
    for spec in specs:
        assert "rows" in spec["datasets"]
        assert render.to_svg(spec).startswith("<svg")
    themes = json.loads(re.search(r'id="themes">(.*?)</script>', text)[1])  # type: ignore[index]
    assert set(themes) == {"light", "dark"}


def test_text_from_users_is_escaped(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    shown = f'[[figures]]\ntitle = {json.dumps(evil)}\nmetrics = ["val/loss"]\n'
    fill(tmp_path, question=evil, shown=shown)
    text = write_report(tmp_path, ["toy"], []).read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "<img" not in text
    assert evil in visible_text(text)


def test_hebrew_questions_have_their_own_direction(tmp_path: Path) -> None:
    fill(tmp_path, question="מה יותר טוב — GPT או LSTM?")
    text = write_report(tmp_path, ["toy"], []).read_text(encoding="utf-8")
    assert '<p class="question" dir="auto">מה יותר טוב' in text


def test_the_same_store_gives_the_same_bytes(tmp_path: Path) -> None:
    fill(tmp_path, shown=QUESTIONS)
    contents = []
    for _ in range(2):
        folder = write_report(tmp_path, ["toy"], []).parent
        contents.append({path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()})
    assert contents[0] == contents[1]


def test_an_interrupted_export_keeps_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path)
    index = write_report(tmp_path, ["toy"], [])
    before = {path: path.read_bytes() for path in index.parent.rglob("*") if path.is_file()}

    def killed(_: str) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(html_report, "to_png", killed)
    with pytest.raises(KeyboardInterrupt):
        write_report(tmp_path, ["toy"], [])
    after = {path: path.read_bytes() for path in index.parent.rglob("*") if path.is_file()}
    assert after == before


def test_removed_figures_leave_no_files(tmp_path: Path) -> None:
    fill(tmp_path)
    folder = write_report(tmp_path, ["toy"], []).parent
    assert (folder / "figures" / "figure-02.svg").exists()
    fill(tmp_path, shown=QUESTIONS, steps=())  # the same study with one figure
    write_report(tmp_path, ["toy"], [])
    assert not (folder / "figures" / "figure-02.svg").exists()
    assert not list(folder.glob(".staging-*"))


def test_a_folder_with_something_else_in_it_is_not_touched(tmp_path: Path) -> None:
    fill(tmp_path)
    mine = tmp_path / "mine"
    (mine / "figures").mkdir(parents=True)
    (mine / "figures" / "cat.png").write_bytes(b"meow")
    with pytest.raises(UsageError, match="holds figures that no report wrote"):
        write_report(tmp_path, ["toy"], [], mine)
    assert (mine / "figures" / "cat.png").read_bytes() == b"meow"


# ---- on paper ----


def test_a_wide_table_is_printed_in_parts_that_fit_the_page(tmp_path: Path) -> None:
    wide = Table("Wide", ("config", *(f"metric {i}" for i in range(30))), (("GPT", *["0.1234 ± 0.0012"] * 30),))
    parts = list(split_to_width(wide, html_report.PAPER_CHARACTERS))
    assert len(parts) > 3
    assert all(sum(len(cell) + 2 for cell in part.rows[0]) <= html_report.PAPER_CHARACTERS + 2 for part in parts)
    assert [name for part in parts for name in part.columns[1:]] == list(wide.columns[1:])
    long = Table("", ("metric", "a heading of several long words"), (("loss", "1.0"),))
    assert len(list(split_to_width(long, 30))) == 1  # its heading takes two lines


def test_a_pdf_needs_a_browser_and_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SEEDBED_BROWSER", raising=False)
    done = CliRunner().invoke(app, ["report", "toy", "--pdf", "--home", str(tmp_path)])
    assert done.exit_code == 4
    assert "apt install chromium" in done.stderr
    assert not (tmp_path / "reports").exists()  # told before anything is computed


@pytest.mark.skipif(not any(map(shutil.which, html_report.BROWSERS)), reason="Chromium is not installed")
def test_a_report_is_printed_with_its_appendix(tmp_path: Path) -> None:
    fill(tmp_path, shown=QUESTIONS)
    page = write_report(tmp_path, ["toy"], [])
    pdf = write_pdf(page, find_browser())
    assert pdf == page.with_suffix(".pdf")
    assert pdf.read_bytes().startswith(b"%PDF-")
    assert pdf.stat().st_size > 20_000


def test_samples_mark_what_is_copied_and_words_that_are_new() -> None:
    index = SuffixArray("the quick brown fox jumps over the lazy dog")
    text = "zebras saw the quick brown fox jumps over us"
    pieces = list(mark_pieces(index, text))
    assert "".join(piece for piece, _ in pieces) == text
    assert [piece for piece, mark in pieces if mark == "new"] == ["zebras", "saw"]
    assert [piece.strip() for piece, mark in pieces if mark == "copied"] == ["the quick brown fox jumps over"]


# ---- what is missing is stated ----


def test_a_study_without_evaluations_has_a_report_that_says_so(tmp_path: Path) -> None:
    fill(tmp_path, steps=(), shown=QUESTIONS)
    text = visible_text(write_report(tmp_path, ["toy"], []).read_text(encoding="utf-8"))
    assert "No run has finished yet" in text
    assert "There is no answer yet" in text
    assert "Nothing to draw" in text
    assert "4 planned" in text


def test_a_running_study_is_reported_as_far_as_it_has_run(tmp_path: Path) -> None:
    fill(tmp_path, end=False)
    with open_store(tmp_path, read_only=True) as store, store.lock(store.study_packs("toy")[0].id):
        text = visible_text(write_report(tmp_path, ["toy"], []).read_text(encoding="utf-8"))
    assert "4 running" in text
    assert "are still running" in text


def test_one_seed_and_one_step_are_drawn_without_a_spread(tmp_path: Path) -> None:
    fill(tmp_path, seeds=(7,), steps=(100,))
    index = write_report(tmp_path, ["toy"], [])
    text = visible_text(index.read_text(encoding="utf-8"))
    assert "There is one seed per config" in text
    assert "Bands are" not in text
    assert (index.parent / "figures" / "figure-01.svg").exists()


def test_nan_and_diverged_runs_are_named_and_in_no_mean(tmp_path: Path) -> None:
    fill(tmp_path, seeds=(0, 1, 2), special={0: nan}, diverges=4)
    text = visible_text(write_report(tmp_path, ["toy"], []).read_text(encoding="utf-8"))
    assert "1 run diverged: the loss became infinite." in text
    assert "1 of 6 runs diverged and are excluded from means." in text
    assert "Gaps are values that are not finite." in text
    assert "2 of 3" in text


def test_overrides_select_runs(tmp_path: Path) -> None:
    fill(tmp_path)
    text = visible_text(write_report(tmp_path, ["toy"], ["train.weight_decay=0.1"]).read_text(encoding="utf-8"))
    assert "2 runs: 2 finished." in text
    assert "seedbed plot toy --only train.weight_decay=0.1" in text
    with pytest.raises(MissingData):
        write_report(tmp_path, ["toy"], ["train.weight_decay=7.0"])


def test_short_trainings_have_a_table_of_metrics_by_step(tmp_path: Path) -> None:
    fill(tmp_path, decays=(0.1,))
    folder = write_report(tmp_path, ["toy"], []).parent / "tables"
    rows = [line.split(",") for line in (folder / "table-02.csv").read_text(encoding="utf-8").splitlines()]
    names = ("L_train", "L_val", "A_train", "A_val")
    assert rows[0] == ["step", "epoch", *(one for name in names for one in (name, f"{name} std"))]
    assert [row[0] for row in rows[1:]] == ["0", "50", "100"]
    assert rows[2][2:4] == ["2.150", "0.050"]  # 3 − 50/50 + 0.1 and 0.1 more for the second seed
    fill(tmp_path, "long", steps=range(0, 101, 2))
    assert len(list((write_report(tmp_path, ["long"], []).parent / "tables").glob("*.csv"))) == 2


def test_the_study_beside_the_page_is_the_one_that_was_run(tmp_path: Path) -> None:
    fill(tmp_path, "two/three")
    index = write_report(tmp_path, ["two/three"], [])
    assert 'name = "two/three"' in (index.parent / "studies" / "two-three.toml").read_text(encoding="utf-8")
    assert "seedbed run studies/two-three.toml" in visible_text(index.read_text(encoding="utf-8"))


def test_a_stopping_question_marks_the_curves_of_its_metric(tmp_path: Path) -> None:
    declarations = QUESTIONS + '[[questions]]\nask = "stopping"\nmetric = "val/loss"\n'
    fill(tmp_path, shown=declarations)
    text = visible_text(write_report(tmp_path, ["toy"], []).read_text(encoding="utf-8"))
    assert "Marks on the validation loss, mean over seeds: best." in text
    assert "best at step 100" in text


def test_several_studies_are_reported_together_and_separately(tmp_path: Path) -> None:
    fill(tmp_path, "one")
    fill(tmp_path, "two/three", decays=(0.5, 2.0, 3.0, 4.0))
    index = write_report(tmp_path, ["one", "two/three"], [])
    assert index.parent.name == "one+two-three"
    text = visible_text(index.read_text(encoding="utf-8"))
    assert "What is best over 2 studies?" in text
    by_loss, *_ = positions = [text.index(f"Best values, by {one}") for one in ("val/loss", "config", "settings")]
    assert positions == sorted(positions)
    first = text[by_loss : text.index("Files", by_loss)]
    decays = re.findall(r"(?<= )(0\.1|1|0\.5|2|3|4)(?= [\d.]+ ±)", first)
    assert decays == ["0.1", "0.5", "1", "2", "3", "4"]


# ---- the commands ----


def test_the_command_of_a_figure_names_its_filters_and_options() -> None:
    figure = FigureSpec(
        kind="sweep", x="train.lr", only={"task.orders": (2, 3), "train.batch_size": (8, 16), "model.kind": "gpt"}
    )
    assert plot_command(figure, "toy") == (
        "seedbed plot toy --only 'task.orders=[2,3] train.batch_size=8,16 model.kind=gpt' --kind sweep --x train.lr"
    )


def test_the_commands_write_a_report_and_a_chart(tmp_path: Path) -> None:
    fill(tmp_path)
    runner = CliRunner()
    home = ["--home", str(tmp_path)]
    written = runner.invoke(app, ["report", "toy", *home])
    assert written.exit_code == 0
    assert Path(written.stdout.strip()).exists()
    out = tmp_path / "figure.svg"
    drawn = runner.invoke(
        app, ["plot", "toy", "--metrics", "val/loss", "--colour", "train.weight_decay", "--out", str(out), *home]
    )
    assert drawn.exit_code == 0
    assert out.read_text(encoding="utf-8").startswith("<svg")
    shown = runner.invoke(app, ["plot", "toy", "--kind", "bars", "--x", "train.weight_decay", *home])
    assert shown.exit_code == 0
    assert "█" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["report", "nothing"], 4, "there is no study 'nothing'"),
        (["report", "toy", "a=b"], 2, "use: seedbed report toy --only a=b"),
        (["plot", "toy", "--kind", "pie"], 2, "--kind pie: expected"),
        (["plot", "toy", "--metrics", "val/acc"], 2, "did you mean val/accuracy?); recorded: train/loss"),
        (["plot", "toy", "--x", "foo"], 2, "x = foo: learning curves are drawn over step, epoch"),
        (["plot", "toy", "--theme", "blue"], 2, "--theme blue: expected light or dark"),
        (["plot", "toy", "--kind", "against"], 2, "--kind against is now called sweep"),
        (["plot", "toy", "--colour", "train.weightdecay"], 2, "did you mean train.weight_decay"),
        (["plot", "toy", "--out", "figure.gif"], 2, "ends in .svg, .png, .pdf or .json"),
        (["plot", "toy", "--alphas", "1,x"], 2, "--alphas 1,x: expected comma-separated numbers"),
        (["plot", "toy", "--figure", "9"], 2, "--figure 9: the study declares 0 figures"),
    ],
)
def test_a_wrong_argument_gets_one_sentence(tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    fill(tmp_path)
    result = CliRunner().invoke(app, [*arguments, "--home", str(tmp_path)])
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_commands_that_draw_nothing_do_not_import_altair() -> None:
    modules = "seedbed.cli, seedbed.report.tables, seedbed.report.study_runs, seedbed.report.overview"
    code = f"import sys, {modules}; print('altair' in sys.modules or 'vl_convert' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"
