"""Who is let in: every route of the router × every method, against strangers' hosts, origins, tokens and bodies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from seedbed.web.app import make_app
from seedbed.web.guard import MAX_BODY_BYTES, SECURITY_HEADERS, Guard
from seedbed.web.store_cache import StoreCache

from .routes import ROUTES, places

PORT = 8765
HERE = f"127.0.0.1:{PORT}"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", "ODD")
BAD_HOSTS = (
    "evil.test", "localhost.evil.test", "127.0.0.1.nip.io", "0.0.0.0", f"0.0.0.0:{PORT}", "127.0.0.1", "localhost",
    "127.0.0.1:80", f"127.0.0.1:{PORT}0", f"127.0.0.1.:{PORT}", f"LOCALHOST:{PORT}",
    f"[::]:{PORT}", f"[::ffff:127.0.0.1]:{PORT}",
    f"user@127.0.0.1:{PORT}", f"127.0.0.1:{PORT}@evil.test", f"127.1:{PORT}", f"2130706433:{PORT}", "",
    f"127.0.0.1:{PORT} evil",
)  # fmt: skip
BAD_ORIGINS = (
    "http://evil.test", "null", f"https://127.0.0.1:{PORT}", "http://127.0.0.1", f"http://127.0.0.1:{PORT}.evil.test",
    f"http://127.0.0.1:{PORT}1", f"http://evil.test/http://127.0.0.1:{PORT}", f"http://127.0.0.1:{PORT}/", "",
    f"http://127.0.0.2:{PORT}", f"file://127.0.0.1:{PORT}", f"HTTP://127.0.0.1:{PORT}",
)  # fmt: skip


def _drive(coroutine: Any) -> None:
    """Runs what never waits, without a loop of events: there are thousands of requests here."""
    with pytest.raises(StopIteration):
        coroutine.send(None)


class Door:
    """A guard with an application behind it that only notes what reached it."""

    def __init__(self) -> None:
        self.guard = Guard.create("127.0.0.1", PORT)
        self.reached: list[tuple[str, str]] = []
        self.read = 0
        self._app = self.guard.wrap(self._inner)

    async def _inner(self, scope: Any, receive: Any, send: Any) -> None:
        self.reached.append((scope["method"], scope["path"]))
        more = scope["method"] == "POST"
        while more:
            message = await receive()
            self.read += len(message.get("body", b""))
            more = message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def ask(
        self, method: str, path: str, *more: tuple[str, str], host: str | None = HERE, token: str | None = "right",
        query: str = "", body: list[bytes] | None = None,
    ) -> tuple[int, dict[str, str]]:  # fmt: skip
        given = {"right": self.guard.token}.get(token or "", token)
        headers = [
            *([("host", host)] if host is not None else []),
            *([("x-seedbed-token", given)] if given else []),
            *more,
        ]
        scope = {
            "type": "http", "method": method, "path": path, "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers],
        }  # fmt: skip
        parts = list(body or [b""])
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

        async def send(message: Any) -> None:
            sent.append(message)

        _drive(self._app(scope, receive, send))
        assert sum(message["type"] == "http.response.start" for message in sent) == 1
        headers_out = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        assert SECURITY_HEADERS.items() <= headers_out.items(), "every answer carries the policy, whatever it is"
        return sent[0]["status"], headers_out


JSON = ("content-type", "application/json")
OURS = ("origin", f"http://{HERE}")


@pytest.fixture
def door() -> Door:
    return Door()


EVERY = sorted(set(places()))


def test_every_route_lets_its_owner_in_and_nobody_else(door: Door) -> None:
    for method, path in EVERY:
        body = [JSON, OURS] if method == "POST" else []
        assert door.ask(method, path, *body)[0] == 200
        before = len(door.reached)
        for token in (
            None,
            "",
            "x",
            door.guard.token[:-1],
            door.guard.token + "x",
            Guard.create("127.0.0.1", PORT).token,
        ):
            assert door.ask(method, path, *body, token=token)[0] == 403
        assert len(door.reached) == before


def test_every_route_is_refused_under_another_host(door: Door) -> None:
    for method, path in EVERY:
        for host in (*BAD_HOSTS, None):
            assert door.ask(method, path, JSON, OURS, host=host)[0] == 421, (path, host)
        assert door.ask(method, path, ("host", "evil.test"))[0] == 421, "two hosts"
    assert door.reached == []


@pytest.mark.parametrize("host", [HERE, f"localhost:{PORT}", f"[::1]:{PORT}"])
def test_the_names_of_this_machine_are_let_in(door: Door, host: str) -> None:
    assert door.ask("GET", "/", host=host)[0] == 200


def test_no_method_of_any_route_is_open_to_another_origin(door: Door) -> None:
    for _, path in EVERY:
        for method in METHODS:
            for origin in BAD_ORIGINS:
                for kind in (JSON, ("content-type", "text/plain")):
                    assert door.ask(method, path, ("origin", origin), kind)[0] in (403, 405), (method, path, origin)
            assert door.ask(method, path, OURS, ("origin", "http://evil.test"), JSON)[0] in (403, 405), "two origins"
    assert door.reached == []


def test_methods_that_the_page_does_not_have_are_refused_on_every_route(door: Door) -> None:
    for _, path in EVERY:
        for method in set(METHODS) - {"GET", "HEAD", "POST"}:
            status, headers = door.ask(method, path, OURS, JSON)
            assert (status, headers["allow"]) == (405, "GET, HEAD, POST")
    assert door.reached == []


def test_changing_requests_need_an_origin_and_json(door: Door) -> None:
    form = ("content-type", "application/x-www-form-urlencoded")
    for _, path in EVERY:
        assert door.ask("POST", path, JSON)[0] == 403
        for kind in (form, ("content-type", "text/plain"), ("content-type", "application/json-evil"), ("x-other", "1")):
            assert door.ask("POST", path, OURS, kind)[0] == 415
    assert door.reached == []


@pytest.mark.parametrize(("site", "mode", "status"), [
    ("cross-site", "no-cors", 403), ("same-site", "no-cors", 403), ("cross-site", "cors", 403),
    ("same-site", "websocket", 403), ("same-origin", "cors", 200), ("none", "navigate", 200),
    ("cross-site", "navigate", 200),
])  # fmt: skip
def test_what_a_browser_says_of_its_own_request_is_held_against_a_list(
    door: Door, site: str, mode: str, status: int
) -> None:
    """A page at another port of this machine is same-site, so that our cookie goes along: it is refused here."""
    assert door.ask("GET", "/api/studies", ("sec-fetch-site", site), ("sec-fetch-mode", mode))[0] == status


def test_nothing_is_inferred_from_the_name_of_a_browser(door: Door) -> None:
    for agent in ("Mozilla/5.0", "curl/8", ""):
        assert door.ask("DELETE", "/", ("user-agent", agent))[0] == 405
        assert door.ask("GET", "/", ("user-agent", agent), host="evil.test")[0] == 421


def test_web_sockets_are_closed(door: Door) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    _drive(door.guard.wrap(door._inner)({"type": "websocket", "path": "/", "headers": []}, None, send))  # type: ignore[arg-type]
    assert [message["type"] for message in sent] == ["websocket.close"]


# ---- bodies ----


def test_a_body_is_bounded_by_what_it_is_and_not_by_what_it_says(door: Door) -> None:
    assert door.ask("POST", "/api/x", OURS, JSON, ("content-length", str(MAX_BODY_BYTES + 1)))[0] == 413
    assert door.reached == []
    parts = [b"x" * 300_000] * 4
    assert door.ask("POST", "/api/x", OURS, JSON, ("content-length", "5"), body=parts)[0] == 413
    assert door.read < MAX_BODY_BYTES
    assert door.ask("POST", "/api/x", OURS, JSON, body=[b"x" * 1000])[0] == 200


def test_an_endless_address_is_refused(door: Door) -> None:
    assert door.ask("GET", "/", query="x" * 20_000)[0] == 414


# ---- the token ----


def test_the_address_with_the_token_sets_a_cookie_and_loses_the_token(door: Door) -> None:
    status, headers = door.ask(
        "GET", "/study/a b", token=None, query=f"colour=train.lr&token={door.guard.token}&only=a%3D1"
    )
    assert (status, headers["location"]) == (303, "/study/a%20b?colour=train.lr&only=a%3D1")
    name, _, rest = headers["set-cookie"].partition("=")
    assert (name, rest) == (f"seedbed-{PORT}", f"{door.guard.token}; Path=/; HttpOnly; SameSite=Strict")
    assert door.ask("GET", "/", ("cookie", f"other=1; {name}={door.guard.token}"), token=None)[0] == 200
    assert door.ask("GET", "/", ("cookie", f"{name}={door.guard.token}x"), token=None)[0] == 403


@pytest.mark.parametrize("path", ["//evil.test/", "/\\evil.test", "//evil.test//x", "///evil.test"])
def test_the_way_in_never_leads_to_another_host(door: Door, path: str) -> None:
    _, headers = door.ask("GET", path, token=None, query=f"token={door.guard.token}")
    assert not headers["location"].startswith(("//", "/\\"))
    assert headers["location"].startswith("/evil.test")


def test_a_wrong_or_doubled_token_in_the_address_is_refused(door: Door) -> None:
    for query in ("token=x", "token=", f"token={door.guard.token}&token=x"):
        assert door.ask("GET", "/", token=None, query=query)[0] == 403
    assert door.reached == []


def test_tokens_are_new_with_every_start_and_not_shown_by_accident() -> None:
    guards = [Guard.create("127.0.0.1", PORT) for _ in range(20)]
    assert len({guard.token for guard in guards}) == 20
    assert all(len(guard.token) >= 32 and guard.token not in repr(guard) for guard in guards)


def test_a_server_for_others_answers_to_its_own_name_only() -> None:
    guard = Guard.create("192.168.1.5", 80)
    assert guard.hosts == {"192.168.1.5:80", "192.168.1.5"}
    assert guard.origins == {"http://192.168.1.5:80", "http://192.168.1.5"}


# ---- the same through the application itself ----


def test_the_application_stands_behind_the_guard_on_every_route(tmp_path: Path) -> None:
    """Through the real stack: no route, static file or error page answers a stranger."""
    app = make_app(StoreCache(tmp_path), Guard.create("127.0.0.1", PORT))
    assert len(ROUTES) >= 12
    with TestClient(app, base_url=f"http://{HERE}", follow_redirects=False, raise_server_exceptions=False) as stranger:
        for method, path in [
            *EVERY,
            ("GET", "/nothing"),
            ("GET", "/static/page.js"),
            ("GET", "/docs"),
            ("GET", "/openapi.json"),
        ]:
            answer = stranger.request(
                method, path, headers={"origin": f"http://{HERE}", "content-type": "application/json"}
            )
            assert answer.status_code == 403, (method, path)
            assert SECURITY_HEADERS.items() <= dict(answer.headers).items()
            assert "access-control-allow-origin" not in answer.headers
