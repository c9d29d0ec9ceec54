"""`seedbed export` and `seedbed import`: another home shows and does the same; docs/export.md runs as it stands."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

import seedbed
from seedbed.store import open_store

from .invoke import CommandLine

PAGE = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^seedbed (.+)$", PAGE, re.MULTILINE)
STUDY = """
question = "Which model learns the table?"
seeds = 2
[base]
task = { p = 11, train_fraction = 0.6 }
model = { dim = 16, heads = 2, layers = 1 }
train = { steps = 12, save_every = 3, eval_every = 3, batch_size = 16 }
[grid]
model.kind = ["gpt", "lstm"]
[[figures]]
kind = "attention"
text = "3 + 4 = 7"
[[figures]]
metrics = ["val/loss", "attention_entropy[layer=1]"]
[[questions]]
ask = "which is better"
metric = "val/loss"
between = "model.kind"
[[questions]]
ask = "does it hold"
metric = "attention_on_operands[from==, layer=1]"
at_least = 0.1
only = { model.kind = "gpt" }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study, `whole` with all of its runs and analyses, and `parts` in which it was stopped."""
    from typer.testing import CliRunner

    from seedbed.cli import app

    folder = tmp_path_factory.mktemp("export")
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    for words in (
        ["run", "--home", "whole", "--quiet", "--workers", "1"],
        ["report", "--home", "whole"],
        ["run", "--home", "stopped", "--quiet", "--workers", "1", "--until", "6"],
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setenv("SEEDBED_DEVICE", "cpu")
            done = CliRunner().invoke(app, [words[0], "study.toml", *words[1:]])
        assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def cli(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> CommandLine:
    """Commands on the trained home, in a folder of their own."""
    shutil.copy(folder / "study.toml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    monkeypatch.setenv("SEEDBED_DEVICE", "cpu")
    return CommandLine(monkeypatch, capsys, folder / "whole")


def carry(cli: CommandLine, home: Path, *options: str) -> CommandLine:
    """Export the study from one home and import it into another; returns the command line of that one."""
    said = cli("export", "study", "--out", home.with_suffix(".zip"), *options).stdout
    assert re.search(r"wrote .*\.zip: 4 runs of study.*; [\d.]+ [kM]B", said)
    new = CommandLine(cli.monkeypatch, cli.capsys, home)
    done = new("import", home.with_suffix(".zip"))
    assert re.search(r"\.zip: 4 runs of study.*; [\d.]+ [kM]B", done.stderr)
    assert "4 runs added" in done.stdout
    return new


READING = [
    ["ls"], ["ls", "study"], ["show", "study"], ["show", "study", "--timing"], ["answer", "study"],
    ["compare", "study", "model.kind", "--metric", "val/loss"], ["results", "study"],
    ["plot", "study", "--figure", "1"], ["plot", "study", "--figure", "2"],
    ["show", "study", "--only", "model.kind=gpt"],
]  # fmt: skip


def test_another_home_without_weights_shows_the_same(cli: CommandLine, tmp_path: Path) -> None:
    new = carry(cli, tmp_path / "new")
    for words in READING:
        assert new(*words).stdout == cli(*words).stdout, words
    for one in (cli, new):
        one("report", "study", "--out", tmp_path / f"report-{one.home.name}")
    one, other = tmp_path / "report-whole", tmp_path / "report-new"
    files = [path.relative_to(one) for path in sorted(one.rglob("*")) if path.is_file()]
    assert len(files) > 10
    for file in files:
        assert (other / file).read_bytes() == (one / file).read_bytes(), file
    assert not list((tmp_path / "new").rglob("*.safetensors"))


def test_with_weights_models_work_as_before(cli: CommandLine, tmp_path: Path) -> None:
    last = carry(cli, tmp_path / "last", "--weights", "last")
    sampling = ["sample", "study", "--prompt", "3 + 4 ="]
    assert last(*sampling).stdout == cli(*sampling).stdout
    assert len(list((tmp_path / "last").rglob("*.safetensors"))) == 4
    heads = ["heads", "study", "--inputs", "5"]
    assert "entropy" in last(*heads).stdout
    every = carry(cli, tmp_path / "every", "--weights", "all")
    assert every(*heads).stdout == cli(*heads).stdout  # circles are followed over all checkpoints


def test_a_stopped_study_goes_on_elsewhere_and_ends_with_the_same_bytes(
    cli: CommandLine, folder: Path, tmp_path: Path
) -> None:
    stopped = CommandLine(cli.monkeypatch, cli.capsys, folder / "stopped")
    new = carry(stopped, tmp_path / "new", "--weights", "all", "--unfinished")
    new("run", "study.toml", "--quiet", "--workers", 1)
    assert new("results", "study").stdout == cli("results", "study").stdout
    weights = {
        home: {path.relative_to(home): path.read_bytes() for path in home.rglob("*.safetensors")}
        for home in (folder / "whole", tmp_path / "new")
    }
    assert len(weights[tmp_path / "new"]) >= 4 * 4
    assert weights[tmp_path / "new"] == weights[folder / "whole"]


def test_two_archives_of_parts_give_the_answers_of_the_whole(cli: CommandLine, tmp_path: Path) -> None:
    for kind in ("lstm", "gpt"):
        cli("export", "study.toml", "--out", f"{kind}.zip", "--only", f"model.kind={kind}")
    ab, ba = (CommandLine(cli.monkeypatch, cli.capsys, tmp_path / name) for name in ("ab", "ba"))
    for new, order in ((ab, ["gpt", "lstm"]), (ba, ["lstm", "gpt"])):
        for kind in order:
            assert "2 runs added" in new("import", f"{kind}.zip").stdout
    for words in READING[2:]:
        if "--timing" not in words:
            assert ab(*words).stdout == cli(*words).stdout, words
    runs = [json.loads(one("ls", "study", "--json").stdout)["runs"] for one in (ba, cli)]
    assert sorted(runs[0], key=lambda run: run["id"]) == sorted(runs[1], key=lambda run: run["id"])


def test_a_text_of_ones_own_is_found_again_by_its_content(cli: CommandLine, tmp_path: Path) -> None:
    there = tmp_path / "ada-lovelace"
    there.mkdir()
    (there / "notes.txt").write_text("to be or not to be\n" * 40)
    text = f"""
    seeds = 1
    [base]
    model = {{ layers = 1, dim = 8, heads = 2 }}
    train = {{ steps = 8, save_every = 2, batch_size = 4, eval_batches = 1 }}
    task = {{ kind = "text", corpus = "{there}/notes.txt", length = 12 }}
    """
    Path("own.toml").write_text(text)
    far = CommandLine(cli.monkeypatch, cli.capsys, there / "lab")
    far("run", "own.toml", "--quiet", "--until", 4)
    far("export", "own", "--out", "own.zip", "--weights", "last", "--unfinished")
    assert b"ada-lovelace" not in Path("own.zip").read_bytes()
    far("run", "own.toml", "--quiet")
    (there / "notes.txt").rename(tmp_path / "notes.txt")
    Path("own.toml").write_text(text.replace(f"{there}/", ""))
    near = CommandLine(cli.monkeypatch, cli.capsys, tmp_path / "near")
    near("import", "own.zip")
    assert near("sample", "own", "--tokens", 20).stdout.strip()
    near("run", "own.toml", "--quiet")
    assert near("results", "own").stdout == far("results", "own").stdout  # the same id, and the same numbers


def test_mistakes_are_answered_in_one_sentence(cli: CommandLine, tmp_path: Path) -> None:
    Path("thesis.zip").write_text("years of work")
    mistakes = [
        (["export", "study", "--out", "a.zip", "--weights", "best"], 2, "--weights best: expected"),
        (["export", "studi", "--out", "a.zip"], 4, "did you mean"),
        (["export", "study"], 2, "--out"),
        (["export", "study", "--out", "a.zip", "--only", "seed=9"], 4, "no run of study has seed=9"),
        (["export", "study", "model.kind=gpt", "--out", "a.zip"], 2, "--only model.kind=gpt"),
        (["export", "study", "--out", "thesis.zip"], 2, "name another file"),
        (["export", "study", "--out", "missing/a.zip"], 4, "cannot be written"),
        (["import", "thesis.zip"], 4, "is not an archive that"),
        (["import", "missing.zip"], 2, "is not there"),
    ]
    for words, code, expected in mistakes:
        done = cli(*words, code=code)
        assert expected in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert Path("thesis.zip").read_text() == "years of work"
    victim = CommandLine(cli.monkeypatch, cli.capsys, tmp_path / "victim")
    victim("import", "thesis.zip", code=4)
    assert not (tmp_path / "victim").exists()


def test_python_exports_and_imports(cli: CommandLine, tmp_path: Path, folder: Path) -> None:
    study = seedbed.Study("study.toml", home=folder / "whole")
    said = study.export("lab.zip", "model.kind=gpt", weights="last")
    assert re.fullmatch(r"wrote lab.zip: 2 runs of study, .*2 checkpoints with weights .*", str(said))
    assert said.n_bytes == Path("lab.zip").stat().st_size
    done = seedbed.import_archive("lab.zip", home=tmp_path / "new")
    assert "2 runs added" in str(done)
    with open_store(tmp_path / "new", read_only=True) as store:
        assert {run.settings.model.kind for run in store.runs("study")} == {"gpt"}


def test_a_compressed_archive_gives_the_same_home(cli: CommandLine, tmp_path: Path, folder: Path) -> None:
    study = seedbed.Study("study.toml", home=folder / "whole")
    plain, compressed = study.export("lab.zip"), study.export("lab.zip.xz")
    assert compressed.n_bytes == Path("lab.zip.xz").stat().st_size < plain.n_bytes / 3
    seedbed.import_archive("lab.zip.xz", home=tmp_path / "new")
    again = seedbed.Study("study.toml", home=tmp_path / "new").export("again.zip")
    assert again.n_bytes == plain.n_bytes
    assert Path("again.zip").read_bytes() == Path("lab.zip").read_bytes()


def test_compressed_archives_that_are_damaged_or_too_large_are_refused(
    cli: CommandLine, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import lzma

    from seedbed.errors import StoreError, UsageError
    from seedbed.store import archive

    study = seedbed.Study("study.toml", home=folder / "whole")
    study.export("lab.zip.xz")
    data = Path("lab.zip.xz").read_bytes()
    middle = len(data) // 2
    for damaged in (data[:middle], data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :], b"text"):
        Path("damaged.zip.xz").write_bytes(damaged)
        with pytest.raises(StoreError, match=r"damaged\.zip\.xz is damaged or incomplete: .*copy it again"):
            seedbed.import_archive("damaged.zip.xz", home=tmp_path / "new")
    monkeypatch.setattr(archive, "MAX_DECOMPRESSED_BYTES", 10**6)
    Path("bomb.zip.xz").write_bytes(lzma.compress(bytes(3 * 10**6)))
    with pytest.raises(StoreError, match=r"more than 1\.0 MB when decompressed"):
        seedbed.import_archive("bomb.zip.xz", home=tmp_path / "new")
    Path("mine.xz").write_text("a text")
    with pytest.raises(UsageError, match=r"mine\.xz is there already and is not a compressed archive"):
        study.export("mine.xz")
    assert Path("mine.xz").read_text() == "a text"
    assert not (tmp_path / "new" / "store.db").exists()


def test_the_commands_of_the_page_run(cli: CommandLine, tmp_path: Path) -> None:
    assert len(COMMANDS) == 6
    for command in COMMANDS:
        words = shlex.split(command, comments=True)
        cli.capsys.readouterr()
        if "--home" in words:
            cli(*words)
        else:
            cli(*words, "--home", cli.home)
    assert (tmp_path / "laptop" / "store.db").exists()
