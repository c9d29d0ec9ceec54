"""Access control: every route × every method against foreign hosts, origins, tokens and bodies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from seedbed.web.guard import MAX_BODY_BYTES, SECURITY_HEADERS, Guard
from seedbed.web.server import make_app
from seedbed.web.store_cache import StoreCache

from .routes import ROUTES, all_requests

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
    """Runs a coroutine that never waits, without an event loop: there are thousands of requests here."""
    with pytest.raises(StopIteration):
        coroutine.send(None)


class GuardedApp:
    """A guard with an application behind it that only records what reached it."""

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
        assert SECURITY_HEADERS.items() <= headers_out.items(), "every response carries the security headers"
        return sent[0]["status"], headers_out


JSON = ("content-type", "application/json")
OURS = ("origin", f"http://{HERE}")


@pytest.fixture
def app() -> GuardedApp:
    return GuardedApp()


ALL_REQUESTS = sorted(set(all_requests()))


def test_every_route_needs_the_token(app: GuardedApp) -> None:
    for method, path in ALL_REQUESTS:
        body = [JSON, OURS] if method == "POST" else []
        assert app.ask(method, path, *body)[0] == 200
        before = len(app.reached)
        for token in (
            None,
            "",
            "x",
            app.guard.token[:-1],
            app.guard.token + "x",
            Guard.create("127.0.0.1", PORT).token,
        ):
            assert app.ask(method, path, *body, token=token)[0] == 403
        assert len(app.reached) == before


def test_every_route_is_rejected_under_another_host(app: GuardedApp) -> None:
    for method, path in ALL_REQUESTS:
        for host in (*BAD_HOSTS, None):
            assert app.ask(method, path, JSON, OURS, host=host)[0] == 421, (path, host)
        assert app.ask(method, path, ("host", "evil.test"))[0] == 421, "two hosts"
    assert app.reached == []


@pytest.mark.parametrize("host", [HERE, f"localhost:{PORT}", f"[::1]:{PORT}"])
def test_loopback_host_names_are_accepted(app: GuardedApp, host: str) -> None:
    assert app.ask("GET", "/", host=host)[0] == 200


def test_no_method_of_any_route_is_open_to_another_origin(app: GuardedApp) -> None:
    for _, path in ALL_REQUESTS:
        for method in METHODS:
            for origin in BAD_ORIGINS:
                for kind in (JSON, ("content-type", "text/plain")):
                    assert app.ask(method, path, ("origin", origin), kind)[0] in (403, 405), (method, path, origin)
            assert app.ask(method, path, OURS, ("origin", "http://evil.test"), JSON)[0] in (403, 405), "two origins"
    assert app.reached == []


def test_other_methods_are_rejected_on_every_route(app: GuardedApp) -> None:
    for _, path in ALL_REQUESTS:
        for method in set(METHODS) - {"GET", "HEAD", "POST"}:
            status, headers = app.ask(method, path, OURS, JSON)
            assert (status, headers["allow"]) == (405, "GET, HEAD, POST")
    assert app.reached == []


def test_post_requests_need_an_origin_and_json(app: GuardedApp) -> None:
    form = ("content-type", "application/x-www-form-urlencoded")
    for _, path in ALL_REQUESTS:
        assert app.ask("POST", path, JSON)[0] == 403
        for kind in (form, ("content-type", "text/plain"), ("content-type", "application/json-evil"), ("x-other", "1")):
            assert app.ask("POST", path, OURS, kind)[0] == 415
    assert app.reached == []


@pytest.mark.parametrize(("site", "mode", "status"), [
    ("cross-site", "no-cors", 403), ("same-site", "no-cors", 403), ("cross-site", "cors", 403),
    ("same-site", "websocket", 403), ("same-origin", "cors", 200), ("none", "navigate", 200),
    ("cross-site", "navigate", 200),
])  # fmt: skip
def test_sec_fetch_headers_are_checked_against_a_list(app: GuardedApp, site: str, mode: str, status: int) -> None:
    """A page on another port of this machine is same-site and sends our cookie, so it must be rejected here."""
    assert app.ask("GET", "/api/studies", ("sec-fetch-site", site), ("sec-fetch-mode", mode))[0] == status


def test_a_link_from_another_site_gets_a_page_that_requests_the_view_again(app: GuardedApp) -> None:
    """The browser withholds the cookie from the link, and sends it with the request that the page itself makes."""
    link = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")]
    status, headers = app.ask("GET", "/study/tiny/rule", *link, token=None)
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert app.reached == []
    wrong = ("cookie", f"seedbed-{PORT}=x")
    assert app.ask("GET", "/study/tiny/rule", *link, wrong, token=None)[0] == 403
    assert app.ask("GET", "/study/tiny/rule", ("sec-fetch-site", "same-origin"), *link[1:], token=None)[0] == 403
    assert app.ask("GET", "/study/tiny/rule", *link[:2], ("sec-fetch-dest", "iframe"), token=None)[0] == 403
    for path in ("/api/studies", "/download/compare/means.csv", "/static/page.js"):
        assert app.ask("GET", path, *link, token=None)[0] == 403
    assert app.ask("POST", "/study/tiny/rule", *link, OURS, JSON, token=None)[0] == 403
    assert app.reached == []


def test_nothing_is_inferred_from_the_user_agent(app: GuardedApp) -> None:
    for agent in ("Mozilla/5.0", "curl/8", ""):
        assert app.ask("DELETE", "/", ("user-agent", agent))[0] == 405
        assert app.ask("GET", "/", ("user-agent", agent), host="evil.test")[0] == 421


def test_web_sockets_are_closed(app: GuardedApp) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    _drive(app.guard.wrap(app._inner)({"type": "websocket", "path": "/", "headers": []}, None, send))  # type: ignore[arg-type]
    assert [message["type"] for message in sent] == ["websocket.close"]


# ---- bodies ----


def test_a_body_is_bounded_by_its_size_and_not_by_its_content_length(app: GuardedApp) -> None:
    assert app.ask("POST", "/api/x", OURS, JSON, ("content-length", str(MAX_BODY_BYTES + 1)))[0] == 413
    assert app.reached == []
    parts = [b"x" * 300_000] * 4
    assert app.ask("POST", "/api/x", OURS, JSON, ("content-length", "5"), body=parts)[0] == 413
    assert app.read < MAX_BODY_BYTES
    assert app.ask("POST", "/api/x", OURS, JSON, body=[b"x" * 1000])[0] == 200


def test_an_overlong_query_is_rejected(app: GuardedApp) -> None:
    assert app.ask("GET", "/", query="x" * 20_000)[0] == 414


# ---- the token ----


def test_the_login_url_sets_a_cookie_and_drops_the_token(app: GuardedApp) -> None:
    status, headers = app.ask(
        "GET", "/study/a b", token=None, query=f"colour=train.lr&token={app.guard.token}&only=a%3D1"
    )
    assert (status, headers["location"]) == (303, "/study/a%20b?colour=train.lr&only=a%3D1")
    name, _, rest = headers["set-cookie"].partition("=")
    value, *attributes = rest.split("; ")
    assert (name, value) == (f"seedbed-{PORT}", app.guard.token)
    assert sorted(attributes) == ["HttpOnly", "Path=/", "SameSite=strict"]
    assert app.ask("GET", "/", ("cookie", f"other=1; {name}={app.guard.token}"), token=None)[0] == 200
    assert app.ask("GET", "/", ("cookie", f"{name}={app.guard.token}x"), token=None)[0] == 403


@pytest.mark.parametrize("path", ["//evil.test/", "/\\evil.test", "//evil.test//x", "///evil.test"])
def test_the_login_redirect_never_leads_to_another_host(app: GuardedApp, path: str) -> None:
    _, headers = app.ask("GET", path, token=None, query=f"token={app.guard.token}")
    assert not headers["location"].startswith(("//", "/\\"))
    assert headers["location"].startswith("/evil.test")


def test_a_wrong_or_repeated_token_in_the_url_is_rejected(app: GuardedApp) -> None:
    for query in ("token=x", "token=", f"token={app.guard.token}&token=x"):
        assert app.ask("GET", "/", token=None, query=query)[0] == 403
    assert app.reached == []


def test_tokens_are_unique_and_not_in_the_repr() -> None:
    guards = [Guard.create("127.0.0.1", PORT) for _ in range(20)]
    assert len({guard.token for guard in guards}) == 20
    assert all(len(guard.token) >= 32 and guard.token not in repr(guard) for guard in guards)


def test_a_public_server_answers_only_to_its_own_name() -> None:
    guard = Guard.create("192.168.1.5", 80)
    assert guard.hosts == {"192.168.1.5:80", "192.168.1.5"}
    assert guard.origins == {"http://192.168.1.5:80", "http://192.168.1.5"}


# ---- the same through the real application ----


def test_the_application_is_guarded_on_every_route(tmp_path: Path) -> None:
    """Through the real stack: no route, static file or error page answers without the token."""
    app = make_app(StoreCache(tmp_path), Guard.create("127.0.0.1", PORT))
    assert len(ROUTES) >= 12
    with TestClient(app, base_url=f"http://{HERE}", follow_redirects=False, raise_server_exceptions=False) as stranger:
        for method, path in [
            *ALL_REQUESTS,
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
