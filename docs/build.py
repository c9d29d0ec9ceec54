# ruff: noqa: E501  sentences of pages
"""Writes the reference pages from the code, and adapts the pages to the site.

    python docs/build.py           # writes docs/reference/*.md and docs/llms.txt; the tests check that they are current

mkdocs loads this file as its hook: contributing and changes become pages of the site, links out of docs/ become text.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

DOCS = Path(__file__).parent
ROOT = DOCS.parent

STUDY_KEYS = {  # the top level of a study file
    "question": "the question, in a sentence",
    "name": "the name under which runs are stored; default: the name of the file",
    "seeds": 'a number (`4` is 0, 1, 2, 3), a list, or a range such as `"0..15"`; default: 0 and 42',
    "base": "settings that all runs share: `[base.task]`, `[base.model]`, `[base.train]`",
    "grid": "lists of values; every combination is a config",
    "zip": "`[[zip]]`: lists that go together, item by item; several groups multiply",
    "configs": "`[[configs]]`: combinations written out one by one, each crossed with the grid",
    "random": "configs drawn at random: `n_configs`, `seed`, and a range or list for each setting",
    "exclude": 'conditions of configs to leave out, such as `"model.layers == 3 and model.dim > 128"`',
    "scales": "`[scales.NAME]`: settings that the argument `scale=NAME` applies to every config",
    "figures": "`[[figures]]`: what is drawn; see below",
    "questions": "`[[questions]]`: what is answered; see below, and [Answers](../answers.md)",
}
TINY = [
    "task.p=7",
    "train.steps=6",
    "train.eval_first=0",
    "train.eval_every=3",
    "model.dim=8",
    "model.layers=1",
    "seeds=2",
]
JSON_COMMANDS = (
    ["plan", "quickstart", *TINY], ["ls"], ["ls", "quickstart"], ["show", "quickstart"], ["answer", "quickstart"],
    ["compare", "quickstart", "seed=0", "seed=1"], ["settings", "train.lr"], ["data", "ls"],
)  # fmt: skip


# ---- Markdown ----


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def page(title: str, introduction: str, *sections: str) -> str:
    return "\n\n".join([f"# {title}", introduction, *sections]) + "\n"


# ---- pages ----


def settings_page() -> str:
    from seedbed.report.reference import GROUPS, setting_as_json

    sections = []
    for group, kinds in GROUPS.items():
        for kind, cls in kinds.items():
            rows = []
            for field in cls.model_fields:
                entry = setting_as_json(f"{group}.{field}")
                default, active = (_of_kind(entry[key], kind) for key in ("defaults", "active_when"))
                meaning = entry["meaning"] if kind == "" else cls.model_fields[field].description or ""
                unit = f" ({entry['unit']})" if entry["unit"] else ""
                where = f"; has an effect where {' and '.join(active)}" if active else ""
                rows.append((code(f"{group}.{field}"), meaning + unit + where, entry["accepts"], code(default)))
            head = f"## {group}.kind = {kind}" if kind else f"## {group}"
            doc = (cls.__doc__ or "").splitlines()[0]
            sections.append(f"{head}\n\n{doc}\n\n" + table(("setting", "meaning", "accepts", "default"), rows))
    return page(
        "Settings",
        "Every setting, by kind of task and model. `seedbed settings NAME` prints the same for one, `--json` for programs. "
        "A run stores all of its settings, so a default that changes later changes no stored run.",
        *sections,
    )


def _of_kind(by_kinds: dict[str, Any], kind: str) -> Any:
    return next((value for kinds, value in by_kinds.items() if kinds == "" or kind in kinds.split(", ")), "")


def study_page() -> str:
    from seedbed.specs import FIGURE_KINDS, FigureSpec, QuestionSpec
    from seedbed.study.read import STUDY_KEYS as KNOWN

    assert set(KNOWN) == set(STUDY_KEYS), "STUDY_KEYS in docs/build.py lists the keys of a study file"
    example = (ROOT / "src/seedbed/study/example.toml").read_text(encoding="utf-8")
    kinds = ", ".join(
        code(kind) + (f" (needs {', '.join(map(code, needs))})" if needs else "")
        for kind, needs in FIGURE_KINDS.items()
    )
    asks = ", ".join(map(code, get_args(QuestionSpec.model_fields["ask"].annotation)))
    return page(
        "The study file",
        "A study is a TOML file. Mistakes are reported with their line, all at once, before anything is computed; "
        "`seedbed plan FILE` shows what it means, `seedbed plan FILE --print-config` every setting written out.",
        table(("key", "meaning"), [(code(key), STUDY_KEYS[key]) for key in KNOWN]),
        "What `seedbed init` writes:\n\n```toml\n" + example + "```",
        f"## [[figures]]\n\n`kind` is one of {kinds}.\n\n"
        + table(("option", "meaning", "accepts", "default"), _options(FigureSpec)),
        f"## [[questions]]\n\n`ask` is one of {asks}; [Answers](../answers.md) says what each needs and when its answer is yes.\n\n"
        + table(("option", "meaning", "accepts", "default"), _options(QuestionSpec)),
    )


def _options(spec: Any) -> Iterator[tuple[str, str, str, str]]:
    from seedbed.settings import _describe_type
    from seedbed.study.toml_text import format_toml_value

    for name, field in spec.model_fields.items():
        default = field.get_default(call_default_factory=True)
        accepts = "a table of settings and values" if name == "only" else _accepts(_describe_type, field)
        shown = "" if default in (None, "", (), {}) else code(format_toml_value(default))
        yield code(name), field.description or "", accepts, shown


def _accepts(describe: Callable[..., str], field: Any) -> str:
    try:
        return describe(field.annotation, list(field.metadata))
    except (KeyError, TypeError, AttributeError):
        return ""


def verbs_page() -> str:
    import typer.main

    from seedbed.cli import app

    group: Any = typer.main.get_command(app)
    verbs = [(name, command) for name, command in group.commands.items() if not command.hidden]
    flat = [
        (f"{name} {child}".strip(), one)
        for name, command in verbs
        for child, one in (getattr(command, "commands", None) or {"": command}).items()
    ]
    sections = [_verb_section(name, command) for name, command in flat]
    return page(
        "Verbs",
        "Results go to standard output, everything else to standard error. `seedbed --plugin FILE VERB …` loads kinds of your own, "
        "`--trace` shows the traceback of an error. Exit codes: [Errors](../errors.md).",
        table(
            ("verb", "does"),
            [(f"[`{name}`](#seedbed-{name.replace(' ', '-')})", _first_sentence(one.help)) for name, one in flat],
        ),
        *sections,
    )


def _verb_section(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help" and not p.hidden]
    words = " ".join(
        ("" if p.required else "[") + p.name.upper() + ("…" if p.nargs == -1 else "") + ("" if p.required else "]")
        for p in arguments
    )
    example = (command.epilog or "").removeprefix("Example: ")
    parts = [f"## seedbed {name}", f"`seedbed {name} {words}`".replace(" `", "`"), _unwrap(command.help)]
    parts += ["```\n" + example + "\n```"] if example else []
    rows = [(code(p.name.upper()), p.help or "") for p in arguments]
    rows += [(", ".join(map(code, [*p.opts, *p.secondary_opts])), _option_help(p)) for p in options]
    return "\n\n".join([*parts, table(("argument or option", "meaning"), rows)] if rows else parts)


def _option_help(option: Any) -> str:
    default = option.default
    shown = default not in (None, "", (), []) and not isinstance(default, bool) and not callable(default)
    names = option.envvar if isinstance(option.envvar, list | tuple) else [option.envvar]
    notes = [f"default: {default}"] if shown and "default:" not in (option.help or "") else []
    notes += [f"variable {code(str(name))}" for name in names if name]
    return (option.help or "") + (f" ({'; '.join(notes)})" if notes else "")


def _unwrap(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in (text or "").replace("\b", "").split("\n\n"))


def _first_sentence(text: str) -> str:
    return re.split(r"[.;:] |\.$|\n\n", " ".join((text or "").split("\n\n")[0].split()))[0]


def metrics_page() -> str:
    from seedbed.stats.attention_stats import HEAD_STATISTICS
    from seedbed.stats.grokking import LABEL_DEFINITIONS
    from seedbed.stats.metric_registry import QUANTITIES
    from seedbed.stats.run_statistics import STATISTICS

    direction = {"min": "lower", "max": "higher", None: "–"}
    heads = {f"attention_{name}": one for name, one in HEAD_STATISTICS.items()}
    metrics = [
        (code(name), one.symbol, one.meaning, one.formula, one.unit, direction[one.direction])
        for name, one in QUANTITIES.items()
        if name not in heads
    ]
    statistics = [
        (code(one.name), one.symbol or one.name, one.meaning, one.formula, one.unit or "of the metric")
        for one in STATISTICS.values()
    ]
    return page(
        "Metrics and statistics",
        "A metric's name is `SPLIT/QUANTITY[GROUP]`, such as `val/loss`, `val/accuracy[order=2]` or `test[obama]/perplexity`; the "
        "norm and the analyses have no split. A statistic turns the curve of a metric into one number per run. Means over seeds are "
        "shown with the population standard deviation (ddof 0).",
        "## Metrics\n\n" + table(("quantity", "symbol", "meaning", "formula", "unit", "better"), metrics),
        "Equations: the tokens after `=` are scored, the result and EOS, so that guessing uniformly has a loss of about ln p ÷ 2. `circle_…` "
        "and `attention_…` are analyses of stored weights (`seedbed report`).",
        "## Attention\n\nMeans over queries and held-out inputs, for each head; in a metric's name the layer and head stand in brackets.\n\n"
        + table(
            ("quantity", "meaning", "unit"), [(code(name), one.description, one.unit) for name, one in heads.items()]
        ),
        "## Statistics\n\n" + table(("statistic", "symbol", "meaning", "formula", "unit"), statistics),
        "Only values up to `--t-max` count, as if training had ended there. Medians of t_90 are Kaplan and Meier's, since some runs "
        "never get there.",
        f"## Grokking\n\nEach run gets one label: {LABEL_DEFINITIONS}.",
    )


def json_page() -> str:
    """Trains a tiny study and describes the document that each verb prints."""
    sections = []
    with tempfile.TemporaryDirectory() as folder:
        run_seedbed(["run", "quickstart", *TINY, "-q"], folder)
        for words in JSON_COMMANDS:
            document = json.loads(run_seedbed([*words, "--json"], folder))
            name = " ".join(word for word in words if "=" not in word) + (" A B" if words[0] == "compare" else "")
            sections.append(f"## seedbed {name} --json\n\n```\n" + "\n".join(outline(document)) + "\n```")
    return page(
        "JSON",
        "Verbs with `--json` print one document. NaN and infinite numbers are `null`. Keys may be added in later versions. "
        "Below, `[…]` is a list of the shape that follows, and `NAME` stands for keys that depend on the study.",
        *sections,
    )


def run_seedbed(words: Sequence[str], folder: str) -> str:
    """What a command prints, in this process."""
    from seedbed.cli import main

    before, argv = dict(os.environ), sys.argv
    os.environ |= {
        "SEEDBED_HOME": str(Path(folder, "lab")),
        "SEEDBED_DEVICE": "cpu",
        "SEEDBED_RATES": str(Path(folder, "rates.json")),
    }
    sys.argv, printed = ["seedbed", *words], io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            main()
    except SystemExit as ended:
        if ended.code:
            raise RuntimeError(f"seedbed {' '.join(words)}: exit code {ended.code}") from None
    finally:
        os.environ.clear()
        os.environ.update(before)
        sys.argv = argv
    return printed.getvalue()


def outline(value: Any, indent: str = "") -> Iterator[str]:
    """The shape of a JSON value: keys with their types, lists by their first item."""
    if isinstance(value, dict):
        names_vary = any(re.search(r"[./\[]", key) or re.fullmatch(r"\d+|[0-9a-f]{16}", key) for key in value)
        for key, item in [("NAME", next(iter(value.values())))] if names_vary else value.items():
            inner = item[0] if isinstance(item, list) and item else item
            listed = "[…] " if isinstance(item, list) else ""
            if key == "settings" and isinstance(inner, dict) and "train" in inner:
                yield f"{indent}{key}: task, model and train, each with all of its settings"
                continue
            if isinstance(inner, dict) and inner:
                yield f"{indent}{key}: {listed}".rstrip()
                yield from outline(inner, indent + "  ")
            else:
                yield f"{indent}{key}: {listed}{type_name(inner)}"
    elif isinstance(value, list):
        yield f"{indent}[…]"
        yield from outline(value[0] if value else None, indent + "  ")
    else:
        yield indent + type_name(value)


def type_name(value: Any) -> str:
    if value in ([], {}, None):
        return "empty here" if value is not None else "null or a value"
    return {bool: "true or false", int: "number", float: "number", str: "text", list: "list"}[type(value)]


PAGES: dict[str, Callable[[], str]] = {
    "settings": settings_page, "study-file": study_page, "verbs": verbs_page, "metrics": metrics_page,
    "json": json_page,
}  # fmt: skip


def llms_text() -> str:
    """An index of the documentation for language models (llmstxt.org): one line for each page, with what it is about."""
    lines = ["# seedbed", "", "> A laboratory for small sequence models: a study file asks a question, all of its runs are trained side by",
             "> side, and answers, tables and charts carry their uncertainty. Start with one-page.md.", ""]  # fmt: skip
    for section, entries in read_navigation():
        lines += [
            f"## {section}",
            "",
            *(f"- [{title}]({path}): {summary_of(DOCS / path)}" for title, path in entries),
            "",
        ]
    return "\n".join(lines)


def read_navigation() -> list[tuple[str, list[tuple[str, str]]]]:
    """The sections of mkdocs.yml's `nav`, with the title and path of each page."""
    sections: list[tuple[str, list[tuple[str, str]]]] = [("Start", [])]
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    for line in nav.splitlines():
        if found := re.fullmatch(r"( +)- ([^:]+):(?: (\S+))?", line):
            indent, title, path = found.groups()
            if path is None:
                sections.append((title, []))
            else:
                (sections[0] if len(indent) == 2 else sections[-1])[1].append((title, path))
    return [(title, [entry for entry in entries if (DOCS / entry[1]).exists()]) for title, entries in sections]


def summary_of(path: Path) -> str:
    """The first sentence after the title of a page."""
    text = re.sub(r"^(?:#|!\[).*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE).strip()
    paragraph = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(text.split("\n\n")[0].split()))
    return re.split(r"(?<=[^.]\.) |: ", paragraph)[0].rstrip(".")


def main() -> None:
    (DOCS / "reference").mkdir(exist_ok=True)
    for name, write in PAGES.items():
        (DOCS / "reference" / f"{name}.md").write_text(write(), encoding="utf-8")
    (DOCS / "llms.txt").write_text(llms_text(), encoding="utf-8")


# ---- hooks of mkdocs ----

EXTRA_PAGES = {"contributing.md": "CONTRIBUTING.md", "changes.md": "CHANGELOG.md"}


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for target, source in EXTRA_PAGES.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files outside docs/ lead to the pages made of them, or become text."""
    name = page.file.src_uri
    folder = ROOT if name in EXTRA_PAGES else (DOCS / name).parent

    def replace(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        if target.startswith(("http:", "https:")) or not target:
            return link[0]
        path = Path(os.path.normpath(folder / target))
        up = "../" * name.count("/")
        pages = {ROOT / source: target for target, source in EXTRA_PAGES.items()}
        if path in pages:
            return f"[{text}]({up}{pages[path]}{anchor})"
        if path.is_relative_to(DOCS) and path.is_file():
            return f"[{text}]({up}{path.relative_to(DOCS)}{anchor})"
        return text

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)#\s]*)(#[^)]*)?\)", replace, markdown)


# Browsers start no worker from a page that was opened as a file; this runs the search in a frame instead.
FRAME_WORKER = """<script>if (location.protocol === "file:") window.Worker = class extends EventTarget {
  constructor(url) {
    super()
    const frame = Object.assign(document.createElement("iframe"), { hidden: true })
    document.body.appendChild(frame)
    this.inner = frame.contentWindow
    addEventListener("message", event => { if (event.source === this.inner)
      this.dispatchEvent(new MessageEvent("message", { data: event.data })) })
    this.inner.document.write(`<script>
      postMessage = data => parent.dispatchEvent(new MessageEvent("message", { data, source: window }))
      importScripts = (...urls) => urls.reduce((done, url) => done.then(() => new Promise((resolve, reject) => {
        const script = Object.assign(document.createElement("script"), { src: url, onload: resolve, onerror: reject })
        document.body.appendChild(script) })), Promise.resolve())
      <\\/script><body><script src="${url}"><\\/script>`)
    this.inner.document.close()
    this.ready = new Promise(resolve => { this.inner.onload = resolve })
  }
  postMessage(data) { this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data }))) }
  terminate() {}
}</script>"""


def on_post_template(output: str, **_: Any) -> str:
    return on_post_page(output)


def on_post_page(output: str, **_: Any) -> str:
    """The site loads nothing from elsewhere: the theme would fetch its search worker for files from another host."""
    return re.sub(r'<script src="?https://[^>]*iframe-worker[^>]*></script>', lambda _: FRAME_WORKER, output)


if __name__ == "__main__":
    main()
