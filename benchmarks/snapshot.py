"""Whether two versions show the same: everything that seedbed shows of one home, written to files and compared.

    python benchmarks/snapshot.py train HOME              a home of every shipped study, made tiny, and special cases
    python benchmarks/snapshot.py take HOME OUT           what this version shows of it, a file each
    python benchmarks/snapshot.py compare OUT1 OUT2       the files that differ, and how; exit code 1 if any do

    python benchmarks/snapshot.py take HOME OUT --only figures tables --study arithmetic/sanity

It uses the command line, the page and the Python API alone, so that it outlives what stands behind them. What belongs
to a call rather than to the home (folders, the page's address) is replaced by its name. Commands may write analyses
into a home: `train` writes them all, and each of two versions is to take a copy of their own.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import difflib
import inspect
import io
import json
import math
import multiprocessing
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import HTTPCookieProcessor, Request, build_opener

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "COLUMNS": "120", "NO_COLOR": "1", "SOURCE_DATE_EPOCH": "0"}
SHORT = "train.steps=151 train.batch_size=32 train.eval_first=10 train.eval_every=30 train.save_every=50 "
TINY = {  # overrides that make each shipped study short; other text studies are run at scale=tiny
    "quickstart": "task.p=11 train.steps=1001 seeds=4",
    "addition": "task.equations=300 train.steps=120 model.dim=16 train.eval_every=30 train.save_every=120",
    "arithmetic/sanity": SHORT + "task.p=7 model.dim=16 seeds=6",
    "arithmetic/data-size": SHORT + "task.p=7 model.dim=16 task.train_fraction=0.2,0.4,0.6,0.8",
    "arithmetic/model-size": SHORT + "task.p=7 model.dim=8,16,32 model.layers=1,2",
    "arithmetic/compute": SHORT.replace("=32", "=8,16,32") + "task.p=7 model.dim=16",
    "arithmetic/positions": SHORT.replace("=32", "=8,16") + "task.p=7 model.dim=16 seeds=2",
    "arithmetic/mixed-orders": SHORT + "task.p=5 model.dim=16",
    "arithmetic/weight-decay": SHORT + "task.p=7 model.dim=16 seeds=3",
    "characters/improvements": "scale=tiny train.max_tokens=32768 seeds=2",
    "characters/layers": "scale=tiny model.layers=3,6,12",
    "speeches/alibi": "scale=tiny seeds=2 task.data_fraction=0.05 train.exclusive=false",
    "speeches/regularised": "scale=tiny seeds=2",
    "wikitext/cost": "scale=tiny seeds=2 train.exclusive=false",
    "wikitext/depth": "scale=tiny train.exclusive=false",
    "wikitext/optimizers": "scale=tiny train.exclusive=false",
}
TEXT = 'task.kind = "text"\ntask.corpus = "own/news.txt"\ntask.length = 16\n'
LABELS = 'task.kind = "labels"\ntask.corpus = "own/news.csv"\ntask.length = 12\nmodel.kind = "encoder"\n'
OWN_BASE = """question = "What does this study show?"
seeds = 3
questions = [{ask = "stopping", metric = "train/loss"}]
[base]
model.layers = 1
model.dim = 16
train.steps = 60
train.batch_size = 16
train.eval_first = 0
train.eval_every = 20
train.save_every = 30
"""
OWN = {  # studies beside the shipped ones: what each adds to OWN_BASE
    "unfinished": "task.p = 7\n[grid]\ntrain.lr = [1e-3, 1e-2]\n",
    "diverged": 'task.p = 7\ntrain.optimizer = "sgd"\ntrain.clip = 0\n[grid]\ntrain.lr = [0.01, 1e8]\n',
    "lr-sweep": 'task.p = 7\n[grid]\ntrain.lr = "log 1e-4..1e-1 x4"\ntask.train_fraction = [0.4, 0.8]\n',
    "searched": 'task.p = 7\n[grid]\ntrain.lr = "log 1e-4..1e-1 x9"\n',
    "own-labels": LABELS + "[grid]\nmodel.dropout = [0.0, 0.3]\n",
    "own-text": TEXT + 'train.sample_every = 30\n[grid]\ntask.tokenizer = ["characters", "bpe"]\n',
    "recurrent": TEXT + '[grid]\nmodel.kind = ["lstm", "gru"]\n',
}
PLACES = ("valley", "harbour", "old town", "stadium")
NEWS = {
    "weather": ("rain over the {}", "a clear sky above the {}"),
    "sport": ("a late goal in the {}", "a draw at the {}"),
}


# ---- train ----


def train(home: Path, studies: list[str]) -> None:
    """Trains all studies, or these, into a home, and writes every analysis."""
    (own := home / "own").mkdir(parents=True, exist_ok=True)
    for name, text in OWN.items():
        (own / f"{name}.toml").write_text(OWN_BASE + text, encoding="utf-8")
    rows = [(label, text.format(place)) for place in PLACES * 15 for label, texts in NEWS.items() for text in texts]
    (own / "news.txt").write_text("".join(f"{text}\n" for _, text in rows), encoding="utf-8")
    (own / "news.csv").write_text(
        "label,text\n" + "".join(f"{label},{text}\n" for label, text in rows), encoding="utf-8"
    )
    shipped = {run["study"] for run in json.loads(seedbed(home, "plan", "*", "--json"))}
    for study in studies or [*OWN, *sorted(shipped)]:
        start, options = time.perf_counter(), ("--device", "cpu", "--workers", "2", "--quiet")
        match study:
            case "searched":
                seedbed(home, "search", "own/searched.toml", "--metric", "train/loss", "--rungs", "2", *options)
            case "unfinished":
                seedbed(home, "run", "own/unfinished.toml", "--until", "30", *options)
            case _ if study in OWN:
                seedbed(home, "run", f"own/{study}.toml", *options)
            case _:
                seedbed(home, "run", study, *TINY.get(study, "scale=tiny").split(), *options)
        seedbed(home, "note", study, f"a note on {study}")
        seedbed(home, "report", study, "--out", str(home / "report"))
        print(f"{time.perf_counter() - start:5.1f} s  {study}", flush=True)


def seedbed(home: Path, *arguments: str) -> str:
    """What a command prints, run in the home's folder, so that copies of the home find the corpora in it."""
    environment = os.environ | ENVIRONMENT | {"SEEDBED_HOME": str(home), "SEEDBED_RATES": str(home / "rates.json")}
    command = [sys.executable, "-m", "seedbed", *arguments]
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True)
    if done.returncode:
        print(f"seedbed {shlex.join(arguments)}: exit code {done.returncode}\n{done.stderr}", flush=True)
    return done.stdout


# ---- take ----

Files = Iterator[tuple[str, str]]  # a name, and what it holds

MISTAKES = """
frobnicate | shwo quickstart | train quickstart | show nothing | show quickstart --only lr
show quickstart --only seed=99 | show quickstart --t-max -1 | show quickstart --format pdf | answer nothing
show quickstart model.layers=2 | ls nothing | run nothing | run quickstart modle.layers=2
run quickstart train.lr=fast | run own/wrong.toml | run quickstart train.lr=-1 model.dim=-1
run quickstart model.dim=7 model.heads=3 | run quickstart scale=huge | run quickstart seeds=0 | run own/missing.toml
plan quickstart --device tpu | plan | plan quickstart --only modle.kind=gpt | compare quickstart
compare quickstart train.lr | compare quickstart nothing | compare arithmetic/sanity model.kind --metric val/los
compare arithmetic/sanity model.kind --value mean | plot quickstart --figure 9 | plot quickstart --kind pie
plot quickstart --metrics val/los | plot quickstart --out a.gif | plot quickstart --colour model.layer
results quickstart --metric val/los | results quickstart --format xml | attend zzzz text | sample zzzz | heads zzzz
hooks zzzz | read zzzz own/news.txt | classify zzzz text | classify own-labels own/missing.csv | ensemble nothing
settings train.lrr | data show nothing | data get nothing | serve --port 99999999 | rm nothing --yes | report nothing
init own/news.csv | note nothing text | tag | search own/searched.toml --rungs 1
search own/searched.toml --metric val/los
"""


def help_files(_: str) -> Files:
    """The help of every verb, the settings, the corpora, and the signatures of the Python API."""
    import seedbed

    yield "help.txt", (top := call("--help"))
    verbs = re.findall(r"^  (\w+)  ", top.partition("Commands:")[2], re.MULTILINE)
    for verb in [*verbs, "data ls", "data get", "data baseline", "data show"]:
        yield f"help-{verb}.txt", call(*verb.split(), "--help")
    for name in ("", "train.lr", "model.positions", "schedule", "--json"):
        yield f"settings-{name}.txt", call("settings", *([name] if name else []))
    for command in ("data ls", "data show speeches", "data show own/news.csv"):
        yield f"{command.replace('/', '_')}.txt", call(*command.split())
    names = {name: getattr(seedbed, name) for name in seedbed.__all__}
    names |= {f"Study.{name}": getattr(seedbed.Study, name) for name in dir(seedbed.Study) if name[0] != "_"}
    names["Study.__init__"] = seedbed.Study.__init__
    signed = (f"{name}{inspect.signature(it)}" if inspect.isroutine(it) else name for name, it in names.items())
    yield "api.txt", "\n".join(signed)


def mistake_files(_: str) -> Files:
    """What is said to wrong commands, settings and files."""
    for command in map(str.strip, re.split(r"[|\n]", MISTAKES.strip())):
        yield f"{re.sub(r'[^a-zA-Z0-9=.-]+', '_', command)}.txt", call(*command.split())


def plan_files(study: str) -> Files:
    """The plan in an empty home, where every time is a guess, and the resolved study."""
    source, empty = f"own/{study}.toml" if study in OWN else study, ("--home", "nowhere")
    yield "plan.txt", call("plan", source, *empty, "--device", "cpu", "--workers", "2")
    yield "plan.json", call("plan", source, *empty, "--device", "cpu", "--workers", "2", "--json")
    yield "config.txt", call("plan", source, *TINY.get(study, "").split(), *empty, "--print-config")


def table_files(study: str) -> Files:
    """The tables of results in each format, the list of runs, and every evaluation."""
    for name in ("text", "csv", "json", "latex", "markdown"):
        yield f"show.{name}", call("show", study, *(["--json"] if name == "json" else ["--format", name]))
    for name, choice in {"half": "--t-max=0.5", "timing": "--timing", "seed-0": "--only=seed=0"}.items():
        yield f"{name}.txt", call("show", study, choice)
    yield "ls.txt", call("ls", study)
    yield "ls.json", call("ls", study, "--json")
    yield "results.csv", call("results", study)


def answer_files(study: str) -> Files:
    """The answers to the study's questions, from all of its runs and from one seed."""
    yield "answer.txt", call("answer", study)
    yield "answer.json", call("answer", study, "--json")
    yield "seed-0.txt", call("answer", study, "--only", "seed=0")


def compare_files(study: str) -> Files:
    """Every setting that varies: by each metric, and by each statistic of the first one."""
    settings, metrics = varying(study)
    for setting in settings:
        for metric in metrics:
            arguments = ("compare", study, setting, "--metric", metric, "--confounded", "--json")
            yield f"{setting}.{metric.replace('/', '_')}.json", call(*arguments)
        for value in ("best", "t_f", "t_90", "last", "gap", "delta_t", "seconds", "memory"):
            yield f"{setting}.{value}.txt", call("compare", study, setting, "--metric", metrics[0], "--value", value)


def figure_files(study: str) -> Files:
    """The specs of the figures that the study declares, and of every kind of chart with choices of its own."""
    import seedbed

    settings, metrics = varying(study)
    n_declared = seedbed.Study.stored(study).text.count("[[figures]]")
    choices = [["--figure", str(number)] for number in range(1, n_declared + 2)]  # one beyond the last
    choices += [["--kind", kind] for kind in ("curves", "sweep", "bars", "budget", "parallel", "fourier")]
    choices += [["--metrics", ",".join(metrics[:2]), "--x", x] for x in ("epoch", "tokens", "time")]
    choices += [["--kind", "sweep", "--metrics", metrics[0], "--x", x] for x in [*settings, "parameters"]]
    choices += [["--metrics", metrics[0], "--stopping", metrics[0], "--theme", "dark", "--y-scale", "log"]]
    for choice in choices:
        name = "-".join(choice).replace("--", "").replace("/", "_")
        yield f"{name}.json", written("plot", study, *choice)
    yield "preview.txt", call("plot", study)


def report_files(study: str) -> Files:
    """The report: its page, tables and charts; the names alone of what is no text."""
    with tempfile.TemporaryDirectory() as folder:
        yield "report.txt", call("report", study, "--out", folder).replace(folder, "OUT")
        paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        yield "files.txt", "\n".join(str(path.relative_to(folder)) for path in paths)
        for path in paths:
            if path.suffix not in (".png", ".pdf"):
                yield str(path.relative_to(folder)), path.read_text(encoding="utf-8").replace(folder, "OUT")


def model_files(study: str) -> Files:
    """What trained models do: those of the study, and of its first, middle and last run."""
    text, few = text_for(study), ("--inputs", "8")
    yield "ensemble.json", call("ensemble", study, "--json")
    yield "ensemble.txt", call("ensemble", study)
    yield "heads.json", call("heads", study, "--json", *few)
    yield "heads.csv", call("heads", study, "--format", "csv", *few)
    yield "classify.json", call("classify", study, "a late goal in the valley", "--json")
    for run in chosen_runs(study):
        yield f"{run}/show.txt", call("show", run)
        yield f"{run}/hooks.txt", call("hooks", run)
        yield f"{run}/heads.txt", call("heads", run, "--ablation", *few)
        yield f"{run}/attend.txt", call("attend", run, text)
        yield f"{run}/attend.json", written("attend", run, text, "--by", "word")
        yield f"{run}/read.json", call("read", run, "own/news.txt", "--json")
        yield f"{run}/sample.json", call("sample", run, "--prompt", text, "--tokens", "40", "-n", "2", "--json")
        yield f"{run}/sample.txt", call("sample", run, "--prompt", text, "--tokens", "40", "--top-k", "5")


def python_files(study: str) -> Files:
    """What a notebook shows."""
    import seedbed

    settings, (metric, *_) = varying(study)
    stored = seedbed.Study.stored(study)
    views: dict[str, Callable[[], Any]] = {
        "study": lambda: stored, "status": stored.status, "table": stored.table,
        "answer": stored.answer, "text": lambda: stored.text, "results": lambda: stored.results(metric),
        "best": lambda: stored.best(metric), "half": lambda: stored.table(t_max=0.5).to_markdown(),
        "ensemble": stored.ensemble, "plot": lambda: stored.plot(metric).to_dict(),
        "compare": lambda: stored.compare(settings[0], metric=metric),
        "runs": lambda: [(run.id, run.seed, run.status, run.step) for run in stored.runs()],
        "models": lambda: stored.load(only="seed=0"), "plan": lambda: stored.plan(device="cpu", workers=2),
    }  # fmt: skip
    for name, view in views.items():
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                shown = view()
                texts = [repr(shown), getattr(shown, "_repr_html_", str)()]
            except (seedbed.SeedbedError, LookupError) as error:
                texts = [f"{type(error).__name__}: {error}"]
        yield f"{name}.txt", "\n".join([*texts, *(str(one.message) for one in warned)])


def page_files(study: str) -> Files:
    """Replies of the page: of the study, of its runs, and of their models."""
    name, text, (settings, metrics) = quote(study), text_for(study), varying(study)
    source = "stored" if study in OWN else "shipped"
    paths = [f"study/{name}", *(f"api/{part}/{name}" for part in ("study", "answers", "configs", "tables", "headline"))]
    paths += [f"api/figure/{name}?number={number}" for number in range(1, 4)]
    paths += [f"api/answers/{name}?only=seed%3D0", f"api/tables/{name}?t_max=0.5", f"api/compare/study?name={name}"]
    paths += [f"download/study/{name}/table/1.{suffix}" for suffix in ("csv", "md", "tex")]
    paths += [f"api/compare?a={name}&by={setting}&metric={quote(metrics[0], safe='')}" for setting in settings]
    paths += [f"api/start/{part}?study={name}&source={source}" for part in ("form", "plan")]
    if study == "quickstart":
        paths += ["", "compare", "inside", "playground", "start", "api/studies", "api/models", "api/start/studies"]
    for run in chosen_runs(study):
        paths += [f"run/{run}", *(f"api/run/{run}{part}" for part in ("", "/figure", "/samples"))]
        paths += [f"api/models/{run}", f"api/heads/{run}", f"api/models/{run}/example?step=last&n=1"]
        yield f"attention-{run}.txt", fetch("api/attention", {"run": run, "text": text})
        yield f"write-{run}.txt", fetch("api/write", {"run": run, "given": text, "tokens": 20})
    for path in paths:
        yield re.sub(r"[^\w=.-]+", "_", path or "index") + ".txt", fetch(path)


PARTS: dict[str, Callable[[str], Files]] = {
    "help": help_files, "mistakes": mistake_files, "plans": plan_files, "tables": table_files, "answers": answer_files,
    "compare": compare_files, "figures": figure_files, "reports": report_files, "models": model_files,
    "python": python_files, "page": page_files,
}  # fmt: skip
OF_NO_STUDY = ("help", "mistakes")


def call(*arguments: str) -> str:
    """What a command prints, in this process; then what it says on stderr, and its exit code."""
    from seedbed.cli import main as run_seedbed

    out, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    sys.argv, code = ["seedbed", *arguments], 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            run_seedbed()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    printed, said = (stream.seek(0) or stream.read() for stream in (out, errors))
    return printed + (f"\n---- stderr, exit code {code} ----\n{said}" if said or code else "")


def written(*arguments: str) -> str:
    """The file that a command writes with --out; without one, what the command says."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.json")
        said = call(*arguments, "--out", str(out)).replace(folder, "OUT")
        return out.read_text(encoding="utf-8") if out.exists() else said


def fetch(path: str, body: dict[str, Any] | None = None) -> str:
    """A reply of the page: its status, and what it holds."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Origin": PAGE["address"]} | ({"Content-Type": "application/json"} if body else {})
    try:
        with PAGE["opener"].open(Request(f"{PAGE['address']}/{path}", data, headers), timeout=300) as reply:
            return str(reply.read().decode())
    except HTTPError as error:
        return f"status {error.code}\n{error.read().decode()}"


PAGE: dict[str, Any] = {}  # where the page is served, and what opens it


@contextlib.contextmanager
def serve_page() -> Iterator[None]:
    """Serves the page of the home, and signs in."""
    command = [sys.executable, "-m", "seedbed", "serve", "--no-browser", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout
        login = server.stdout.readline().strip()
        PAGE.update(address=login.partition("/?")[0], token=login.partition("token=")[2])
        PAGE["opener"] = build_opener(HTTPCookieProcessor(CookieJar()))
        PAGE["opener"].open(login).close()
        yield
    finally:
        server.terminate()
        server.wait(20)


def varying(study: str) -> tuple[list[str], list[str]]:
    """The settings that vary in a study, and its metrics without a part in brackets."""
    rows = csv.reader(io.StringIO(call("results", study)))
    columns = next(rows)
    at, metric_at = columns.index("seed"), columns.index("metric")
    return columns[1:at], [name for name in dict.fromkeys(row[metric_at] for row in rows) if "[" not in name]


def chosen_runs(study: str) -> list[str]:
    """The first, the middle and the last run of a study."""
    runs = [run["id"] for run in json.loads(call("ls", study, "--json"))["runs"]]
    return list(dict.fromkeys((runs[0], runs[len(runs) // 2], runs[-1])))


def text_for(study: str) -> str:
    """A text that the study's models can read."""
    if study.startswith(("own", "recurrent")):
        return "a clear sky"
    prose = study.startswith(("characters", "speeches", "wikitext"))
    return "שלום חיים" if study.endswith("hebrew") else "the end of day" if prose else "3 + 4 ="


def normalise(text: str, home: Path) -> str:
    """The text without what belongs to this call: folders, and the address and token of the page."""
    import seedbed

    address, package = PAGE.get("address", ""), str(Path(seedbed.__file__).parent)
    names = {address: "PAGE", address[len("http://") :]: "PAGE", PAGE.get("token", ""): "TOKEN", str(home): "HOME"}
    for found, name in (names | {package: "PACKAGE", os.environ.get("SEEDBED_DATA", ""): "DATA"}).items():
        text = text.replace(found, name) if found else text
    return text


def take_part(job: tuple[str, str, Path, Path]) -> tuple[str, str, int, float]:
    """Writes the files of one part of one study; returns how many, and CPU seconds."""
    part, study, home, out = job
    folder, n = out / part / study, 0
    for name, text in PARTS[part](study):
        (file := folder / name).parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(normalise(text, home).encode())
        n += 1
    return part, study, n, time.process_time()


def take(home: Path, out: Path, only: list[str], studies: list[str], processes: int) -> None:
    """Writes what this version shows; each part of each study in a process of its own, so that none changes another."""
    os.environ.update(ENVIRONMENT, SEEDBED_HOME=str(home), SEEDBED_RATES=str(home / "none.json"))
    os.chdir(home)
    import altair  # noqa: F401  imported once, before the processes are forked
    import scipy.stats  # noqa: F401
    import torch  # noqa: F401

    stored = dict.fromkeys(run["study"] for run in json.loads(call("ls", "--json"))["runs"])
    chosen = {part: [""] * (not studies) if part in OF_NO_STUDY else studies or [*stored] for part in only}
    jobs = [(part, study, home, out) for part in only for study in chosen[part]]
    for part, study, *_ in jobs:
        shutil.rmtree(out / part / study, ignore_errors=True)
    page = serve_page() if "page" in only else contextlib.nullcontext()
    with page, multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=1) as pool:
        for part, study, n, seconds in pool.imap_unordered(take_part, jobs):
            print(f"{seconds:5.1f} s  {part} {study}: {n} files", flush=True)


# ---- compare ----

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def compare(first: Path, second: Path, only: list[str], studies: list[str], tolerance: float, png: Path | None) -> int:
    """Prints the files that differ and how; returns their number."""
    files = [{str(path.relative_to(out)): path for path in out.rglob("*") if path.is_file()} for out in (first, second)]
    wanted = tuple(f"{part}/{study}/" if study else f"{part}/" for part in only for study in studies or [""])
    differing: dict[str, list[str]] = {}
    n_same: dict[str, int] = dict.fromkeys(only, 0)
    for name in sorted(files[0].keys() | files[1].keys()):
        if not name.startswith(wanted):
            continue
        if name not in files[0] or name not in files[1]:
            differing[name] = [f"only in {first if name in files[0] else second}"]
            continue
        texts = [out[name].read_text(encoding="utf-8") for out in files]
        if lines := describe_differences(*texts, tolerance):
            differing[name] = lines
            if png and name.startswith("figures/"):
                draw_both(texts, png / name.replace("/", "_"))
        else:
            n_same[name.partition("/")[0]] += 1
    for name, lines in differing.items():
        print(name, *(f"    {line[:300]}" for line in lines[:12]), sep="\n")
        if len(lines) > 12:
            print(f"    and {len(lines) - 12} more lines")
    for part in only:
        print(f"{part}: {n_same[part]} the same, {sum(name.startswith(part + '/') for name in differing)} differ")
    return len(differing)


def describe_differences(first: str, second: str, tolerance: float) -> list[str]:
    """The lines that differ between two texts; numbers within the tolerance, relative and absolute, are equal."""
    if first == second:
        return []
    lines = [to_lines(text) for text in (first, second)]
    if len(lines[0]) != len(lines[1]):
        return [line for line in list(difflib.unified_diff(*lines, lineterm="", n=0))[2:] if line[:2] != "@@"]
    pairs = [pair for pair in zip(*lines, strict=True) if not is_close(*pair, tolerance)]
    return [text for pair in pairs for text in (f"-{pair[0]}", f"+{pair[1]}")] or ["white space differs"][
        : not tolerance
    ]


def is_close(first: str, second: str, tolerance: float) -> bool:
    if first == second or not tolerance or NUMBER.sub("#", first) != NUMBER.sub("#", second):
        return first == second
    numbers = zip(*(map(float, NUMBER.findall(line)) for line in (first, second)), strict=True)
    return all(math.isclose(*pair, rel_tol=tolerance, abs_tol=tolerance) for pair in numbers)


def to_lines(text: str) -> list[str]:
    """A line for each value of a JSON document, with its path; HTML a tag a line; the lines of any other text."""
    try:
        return list(flatten(json.loads(text), "$"))
    except ValueError:
        return re.sub(r">\s*<", ">\n<", text).splitlines()


def flatten(value: Any, path: str) -> Iterator[str]:
    """
    >>> list(flatten({"a": [1, "x\\ny"], "b": {}}, "$"))
    ["$.a[0]: 1", "$.a[1]: 'x'", "$.a[1]: 'y'", "$.b: {}"]
    """
    if isinstance(value, (dict, list)) and value:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from flatten(inner, f"{path}.{key}" if isinstance(value, dict) else f"{path}[{key}]")
    else:
        parts = value.splitlines() if isinstance(value, str) and value else [value]
        yield from (f"{path}: {part!r}" for part in parts)


def draw_both(specs: list[str], path: Path) -> None:
    """Draws both versions of a figure, as NAME.1.png and NAME.2.png."""
    import vl_convert

    path.parent.mkdir(parents=True, exist_ok=True)
    for number, spec in enumerate(specs, 1):
        if spec.startswith("{"):
            path.with_suffix(f".{number}.png").write_bytes(vl_convert.vegalite_to_png(spec, scale=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, paths in {"train": ["home"], "take": ["home", "out"], "compare": ["first", "second"]}.items():
        options = verbs.add_parser(verb)
        for name in paths:
            options.add_argument(name, type=lambda text: Path(text).absolute())
        options.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS], help="parts")
        options.add_argument("--study", nargs="+", default=[], help="studies; default: all")
        options.add_argument("--processes", type=int, default=2)
        options.add_argument("--tolerance", type=float, default=0.0, help="of numbers, relative and absolute")
        options.add_argument("--png", type=Path, help="folder for pictures of the figures that differ")
    given = parser.parse_args()
    if given.verb == "train":
        train(given.home, given.study)
    elif given.verb == "take":
        take(given.home, given.out, given.only, given.study, given.processes)
    else:
        sys.exit(compare(given.first, given.second, given.only, given.study, given.tolerance, given.png) > 0)


if __name__ == "__main__":
    main()
