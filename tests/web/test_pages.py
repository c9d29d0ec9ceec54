"""Responses of the page: errors as one sentence, strings as text, no files outside the store, no connections."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import seedbed.web
from seedbed.api.archives import copy_runs
from seedbed.report.sections import build_study_section
from seedbed.report.tables import to_json
from seedbed.store import bound_store, open_store
from seedbed.web.live import LiveProgress

from ..postgres_server import PostgresServer
from ..report.factories import fill
from .conftest import client_of
from .routes import ROUTES, parameters, path_of

WEB = Path(seedbed.web.__file__).parent
SECRET = "what lies outside"
CORPUS = (
    "../secret.txt", "..\\secret.txt", "%2e%2e%2fsecret.txt", "..%2fsecret.txt", "%252e%252e%252fsecret.txt",
    "%25252e%25252e%25252fsecret.txt", "%c0%ae%c0%ae%c0%afsecret.txt", "//etc/passwd", "/etc/passwd", "C:\\secret.txt",
    "\\\\host\\share",
    "file:///etc/passwd", "tiny%00/rule", "../home-secret/secret.txt", "x" * 4096, ".hidden", "....//secret.txt",
    "store.db", "../home/store.db", "<script>alert(1)</script>", "{{7*7}}", "%s%n", "\u202etxt.exe",
)  # fmt: skip
# Routes answered by the model worker; its own tests cover bad names.
MODEL_ROUTES = ("/api/heads/",)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, Path]]:
    """A home with a secret beside it, a folder whose name has the same prefix, and a symlink that leads out."""
    top = tmp_path_factory.mktemp("top")
    home = top / "home"
    fill(home, "tiny/rule")
    for folder in (top, top / "home-secret", home):
        folder.mkdir(exist_ok=True)
        (folder / "secret.txt").write_text(SECRET)
    (home / "reports").symlink_to(top)
    with client_of(home) as client:
        yield client, home


def test_no_parameter_of_any_route_reaches_a_file(guarded: tuple[TestClient, Path]) -> None:
    client, _ = guarded
    asked = 0
    for route in ROUTES:
        if (
            "GET" not in route.methods
            or not parameters(route)
            or "/live/" in route.path
            or route.path.startswith(MODEL_ROUTES)
        ):
            continue
        for value in CORPUS:
            answer = client.get(path_of(route, dict.fromkeys(parameters(route), value)))
            assert answer.status_code in (400, 403, 404, 405, 422), (route.path, value, answer.status_code)
            assert SECRET not in answer.text
            assert "SQLite format" not in answer.text
            assert "root:" not in answer.text
            asked += 1
    assert asked >= 7 * len(CORPUS)


def test_a_hostile_query_gets_a_one_line_error(guarded: tuple[TestClient, Path]) -> None:
    client, _ = guarded
    for query in (
        "only=__class__%3D1",
        "t_max=-1",
        "t_max=NaN",
        "t_max=1e999",
        "x_scale=evil",
        "only=a",
        "number=0",
        "number=x",
        "only=train.lr%3D",
    ):
        for path in ("/api/figure/tiny/rule", "/api/configs/tiny/rule"):
            answer = client.get(f"{path}?{query}")
            assert answer.status_code in (200, 400, 404), (path, query, answer.text)
            if answer.status_code != 200:
                assert len(answer.json()["error"].splitlines()) == 1
                assert "Traceback" not in answer.text
    filters = "&".join("only=train.lr%3D1" for _ in range(41))
    assert "at most 40" in client.get(f"/api/configs/tiny/rule?{filters}").json()["error"]


# ---- escaping ----

EVIL = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>{{7*7}}\'"&\u202e'


def test_names_and_questions_are_escaped_in_every_page(tmp_path: Path) -> None:
    fill(tmp_path, EVIL, question=EVIL, diverges=0)
    with client_of(tmp_path) as client, open_store(tmp_path, read_only=True) as store:
        run = store.runs(EVIL)[0].id
        pages = [
            client.get("/"),
            client.get(f"/study/{_quoted(EVIL)}"),
            client.get(f"/run/{_quoted(run)}"),
            client.get(f"/study/{_quoted(EVIL)}x"),
        ]
    assert [page.status_code for page in pages] == [200, 200, 200, 404]
    for page in pages:
        assert "<img src=x" not in page.text
        assert "<script>window" not in page.text
        assert "49" not in page.text, "a name is never evaluated as a template"


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


def test_no_script_sets_markup_and_no_template_holds_a_script_or_style() -> None:
    """Text is set as text everywhere, and nothing relies on what the content security policy blocks."""
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
        r"|setAttribute\(\s*.style|srcdoc|javascript:"
    )
    for path in (WEB / "static").glob("*.js"):
        assert not forbidden.search(path.read_text(encoding="utf-8")), path.name
    for path in (WEB / "templates").glob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(
            r"\son\w+\s*=|\sstyle\s*=|\|\s*safe|autoescape|<style|<script(?![^>]*\ssrc=|[^>]*application/json)", text
        ), path.name
    addresses = re.compile(r"https?://(?!www\.w3\.org/)")
    for path in [*(WEB / "static").iterdir(), *(WEB / "templates").iterdir()]:
        assert not addresses.search(path.read_text(encoding="utf-8")), f"{path.name} names an external URL"


def test_nan_and_infinity_are_sent_as_strings(tmp_path: Path) -> None:
    fill(tmp_path, "toy", special={0: float("nan"), 1: float("inf")})
    with client_of(tmp_path) as client:
        for part in ("study", "figure", "configs", "tables", "answers"):
            answer = client.get(f"/api/{part}/toy")
            assert answer.status_code == 200
            json.loads(answer.text, parse_constant=pytest.fail)


# ---- studies and tables ----


def test_every_study_is_listed_with_its_question_and_states(client: TestClient) -> None:
    found = {study["name"]: study for study in client.get("/api/studies").json()["studies"]}
    assert found["tiny/rule"]["states"] == {"finished": 4}
    assert found["tiny/rule"]["varies"] == ["train.weight_decay"]
    assert found["tiny/hebrew"]["question"] == "מה לומד מודל קטן משיר אחד?"


@pytest.mark.parametrize("study", ["tiny/rule", "tiny/hebrew"])
def test_the_tables_of_a_study_are_those_of_its_report(client: TestClient, trained_home: Path, study: str) -> None:
    shown = client.get(f"/api/tables/{study}").json()
    with open_store(trained_home, read_only=True) as store:
        section = build_study_section(store, study, ())
    assert shown["tables"] == json.loads(json.dumps([to_json(table) for table in section.tables]))
    assert shown["tables"][-1]["title"] == section.tables[-1].title != section.tables[0].title
    environment = [(one["title"], len(one["rows"])) for one in shown["provenance"]]
    assert environment == [(table.title, len(table.rows)) for table in section.environment_tables]


# ---- no outgoing connections ----


def test_no_page_or_api_request_opens_a_connection(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    connections: list[Any] = []
    monkeypatch.setattr(socket.socket, "connect", lambda _, address: connections.append(address))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments: connections.append(arguments))
    run = client.get("/api/configs/tiny/rule").json()["configs"][0]["runs"][0]["id"]
    places = [
        "/",
        "/study/tiny/rule",
        f"/run/{run}",
        "/api/studies",
        "/api/headline/tiny/rule",
        f"/api/run/{run}",
        f"/api/run/{run}/figure",
        f"/api/run/{run}/samples",
        "/static/vega.js",
        "/static/themes.js",
    ]
    places += [
        f"/api/{part}/tiny/{study}"
        for part in ("study", "figure", "configs", "tables", "answers")
        for study in ("rule", "hebrew")
    ]
    for one in places:
        assert client.get(one).status_code == 200, one
    assert connections == []


# ---- error messages ----


def test_an_empty_home_shows_how_to_start(tmp_path: Path) -> None:
    with client_of(tmp_path) as client:
        assert "seedbed run quickstart" in client.get("/").text
        assert client.get("/api/studies").json() == {"studies": []}
        missing = client.get("/study/quickstart")
        assert missing.status_code == 404
        assert "there is no store" in missing.text
        assert 'aria-label="Views"' in missing.text, "the error page has the navigation"


def test_a_missing_study_is_reported_with_the_stored_ones(client: TestClient) -> None:
    study, run = client.get("/study/nope"), client.get("/api/run/nope")
    assert (study.status_code, run.status_code) == (404, 404)
    assert all(name in study.text for name in ("tiny/rule", "tiny/hebrew"))
    assert run.json()["error"].startswith("there is no run 'nope'")


def test_a_damaged_store_is_reported_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"not a database at all" * 20)
    with client_of(tmp_path) as client:
        answer = client.get("/api/studies")
        assert answer.status_code == 503
        assert "is not a database" in answer.json()["error"]
        page = client.get("/study/x")
        assert page.status_code == 503
        assert "is not a database" in page.text


def test_an_internal_error_hides_its_details_from_the_browser(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("seedbed.web.study_page._listed_study", lambda _: 1 / 0)
    client.app.state.store_cache._entries.clear()  # type: ignore[attr-defined]
    answer = client.get("/api/studies")
    assert answer.status_code == 500
    assert "ZeroDivision" not in answer.text
    assert "ZeroDivisionError" in capsys.readouterr().err, "the terminal shows the traceback"


def test_static_files_are_revalidated_by_etag_and_vega_is_cached(client: TestClient) -> None:
    first = client.get("/static/page.js")
    assert first.headers["content-type"].startswith("text/javascript")
    again = client.get("/static/page.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    vega = client.get("/static/vega.js")
    assert "immutable" in vega.headers["cache-control"]
    assert len(vega.content) > 500_000
    ranged = client.get("/static/vega.js", headers={"range": "bytes=" + ",".join(f"{i}-" for i in range(5000))})
    assert ranged.status_code == 200, "range requests are not supported"


# ---- another store ----


@pytest.fixture
def on_postgres(
    trained_home: Path, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TestClient]:
    """A client of a database with the runs of one of its studies."""
    address = postgres.new_store(tmp_path / "lab")
    copy_runs(["tiny/rule"], address, home=trained_home)
    monkeypatch.setenv("SEEDBED_STORE", address.partition("#")[0])
    with client_of(tmp_path / "lab") as opened:
        yield opened


def test_every_view_of_a_database_is_that_of_a_home(
    client: TestClient, on_postgres: TestClient, trained_home: Path, tmp_path: Path
) -> None:
    with open_store(f"sqlite:{trained_home}", read_only=True) as store:
        run = store.runs("tiny/rule")[0].id
    asked = 0
    for route in ROUTES:
        if "GET" not in route.methods or "/live/" in route.path or route.path in OF_ALL_STUDIES:
            continue
        for file_format in ("csv", "svg") if "file_format" in parameters(route) else ("",):
            path = path_of(route, {"name": "tiny/rule", "run": run, "file_format": file_format, "part": "means"})
            path += f"?{QUERIES.get(route.path, '')}"
            expected, found = without_database(client, path), on_postgres.get(path)
            assert found.status_code == expected.status_code, (path, found.text)
            assert found.text.replace(str(tmp_path / "lab"), str(trained_home.absolute())) == expected.text, path
            asked += found.status_code == 200
    assert asked > 20
    for path in OF_ALL_STUDIES:
        assert on_postgres.get(path).status_code == 200


OF_ALL_STUDIES = ("/", "/api/models", "/api/studies", "/api/start/studies")  # of which one is not in the database
QUERIES = {
    "/api/compare": "study=tiny/rule&by=train.weight_decay", "/api/compare/study": "name=tiny/rule",
    "/api/start/form": "study=tiny/rule", "/api/start/plan": "study=tiny/rule",
}  # fmt: skip


def without_database(client: TestClient, path: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SEEDBED_STORE")
        return client.get(path)


def test_while_the_server_of_its_database_is_away_the_page_says_so(
    on_postgres: TestClient, postgres: PostgresServer
) -> None:
    live = LiveProgress(on_postgres.app.state.store_cache)  # type: ignore[attr-defined]

    async def follow() -> list[str]:
        changes, found = [postgres.kill, postgres.start, live.close], list[str]()
        async for event in live.stream_events(lambda now: {"n": len(now.runs)}):
            if event.startswith("event: "):  # no heartbeat
                found.append(event)
                await asyncio.to_thread(changes.pop(0))
        return found

    with ThreadPoolExecutor(1) as thread:
        before, away, after = thread.submit(asyncio.run, follow()).result(timeout=120)
    assert ('"n": 4' in before, '"n": 4' in after) == (True, True)
    assert "cannot be reached" in away
    postgres.kill()
    try:
        answer = on_postgres.get("/api/study/tiny/rule")
    finally:
        postgres.start()
    assert answer.status_code == 503
    assert "cannot be reached" in answer.json()["error"]
    assert on_postgres.get("/api/study/tiny/rule").status_code == 200


def test_a_started_command_names_its_database(on_postgres: TestClient, postgres: PostgresServer) -> None:
    assert bound_store(on_postgres.app.state.store_cache.home) == postgres.address()  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEDBED_STORE", "postgresql://ada:secret@db/lab")
        assert bound_store(Path("lab")) == "postgresql://ada:***@db/lab"
