"""Access control: every request passes the guard before any route, whatever its path or method.

    guard = Guard.create("127.0.0.1", 8765)
    guard.login_url                          http://127.0.0.1:8765/?token=…

Any website that the user opens can send requests to a server on loopback, so each request is checked against exact
allow-lists: one known Host (against DNS rebinding), one known Origin where the header is present, a token that is new
with every start, three methods, JSON bodies of bounded size. Nothing is inferred from the user agent. What a request
means is left to the views.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "[::1]")
ALLOWED_METHODS: Final = ("GET", "HEAD", "POST")
MAX_BODY_BYTES: Final = 1_000_000
MAX_QUERY_CHARACTERS: Final = 16_000
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
SECURITY_HEADERS: Final = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
MISSING_TOKEN_MESSAGE: Final = (
    "open the URL that `seedbed serve` printed, with its token; the token is new with every start"
)


# A browser sends no cookie where another site's link starts a request, but does where this page starts the same one.
_CONTINUE_PAGE: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0">'
    "<title>seedbed</title><p>Opening the page …</p></html>"
)
_NO_VIEWS: Final = ("/api/", "/download/", "/static/")  # paths that no link leads to


class RequestError(HTTPException):
    """A rejected request, with the HTTP status and message to send; FastAPI passes it on where it reads a body."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Guard:
    """The hosts, origins and token that one run of the server accepts."""

    hosts: frozenset[str]
    origins: frozenset[str]
    base_url: str  # scheme, host and port
    cookie_name: str
    token: str = field(repr=False)

    @property
    def login_url(self) -> str:
        """The URL to open; its token is exchanged for a cookie."""
        return f"{self.base_url}/?token={self.token}"

    @classmethod
    def create(cls, host: str, port: int) -> Guard:
        """A guard with a new token for a server at this host and port."""
        name = f"[{host}]" if ":" in host and not host.startswith("[") else host
        names = {name, *LOOPBACK_HOSTS} if is_loopback(host) else {name}
        hosts = {f"{name}:{port}" for name in names} | (names if port == 80 else set())
        # Browsers share cookies between ports of a host; the port in the name keeps two servers apart.
        cookie, origins = f"seedbed-{port}", frozenset(f"http://{one}" for one in hosts)
        return cls(frozenset(hosts), origins, f"http://{name}:{port}", cookie, secrets.token_urlsafe(24))

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """The application behind this guard, as ASGI middleware."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                await app(scope, receive, send)
            elif scope["type"] == "http":
                await self._handle(app, scope, receive, _add_security_headers(send))
            else:  # WebSocket: the page uses none
                await send({"type": "websocket.close", "code": 1008})

        return guarded

    async def _handle(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        try:
            self._check_source(request)
            if (login := self._log_in(request)) is not None:
                await login(scope, receive, send)
                return
            given = request.headers.get("x-seedbed-token") or request.cookies.get(self.cookie_name, "")
            if not given and _follows_link(request):
                await HTMLResponse(_CONTINUE_PAGE)(scope, receive, send)
                return
            if not self._is_valid_token(given):
                raise RequestError(403, MISSING_TOKEN_MESSAGE)
            _check_body(request)
            await app(scope, _limit_body(receive), send)
        except RequestError as error:
            headers = {"allow": ", ".join(ALLOWED_METHODS)} if error.status_code == 405 else None
            await PlainTextResponse(f"seedbed: {error.detail}\n", error.status_code, headers)(scope, receive, send)

    def _check_source(self, request: Request) -> None:
        """Checks Host, Origin, Sec-Fetch-Site, method and query length."""
        hosts, origins = request.headers.getlist("host"), request.headers.getlist("origin")
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            raise RequestError(421, f"this server answers to {', '.join(sorted(self.hosts))} only")
        if request.method not in ALLOWED_METHODS:
            raise RequestError(405, f"the page uses {', '.join(ALLOWED_METHODS)} only")
        if len(origins) > 1 or not self.origins.issuperset(origins):
            raise RequestError(403, "requests from other origins are rejected")
        if request.method == "POST" and not origins:
            raise RequestError(403, "a POST request must have an Origin header")
        # When the user follows a link, the SameSite cookie is not sent, so only the token gives access.
        is_navigation = request.method == "GET" and request.headers.get("sec-fetch-mode") == "navigate"
        if request.headers.get("sec-fetch-site", "") not in ("", "none", "same-origin") and not is_navigation:
            raise RequestError(403, "requests from other sites are rejected")
        if len(request.scope["query_string"]) > MAX_QUERY_CHARACTERS:
            raise RequestError(414, f"the query is longer than {MAX_QUERY_CHARACTERS:,} characters")

    def _log_in(self, request: Request) -> Response | None:
        """For a URL with the token, its cookie and a redirect to the same URL without it; None for a URL without."""
        query = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if not given or request.method != "GET":
            return None
        if len(given) > 1 or not self._is_valid_token(given[0]):
            raise RequestError(403, f"this token is not valid: {MISSING_TOKEN_MESSAGE}")
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        path = "/" + quote(request.scope["path"].lstrip("/\\"), safe="/")  # `//` would redirect to another host
        response = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
        response.set_cookie(self.cookie_name, self.token, httponly=True, samesite="strict")
        return response

    def _is_valid_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


def _follows_link(request: Request) -> bool:
    """Whether a link of another site leads to a view; it then requests itself again, which needs the cookie as ever."""
    fetched = {name: request.headers.get(f"sec-fetch-{name}", "") for name in ("site", "mode", "dest")}
    is_link = (fetched["mode"], fetched["dest"]) == ("navigate", "document")
    is_foreign = fetched["site"] in ("cross-site", "same-site")
    return request.method == "GET" and is_link and is_foreign and not request.scope["path"].startswith(_NO_VIEWS)


# ---- bodies ----


def _check_body(request: Request) -> None:
    if request.method != "POST":
        return
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestError(415, "the body must be JSON (content-type: application/json)")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > MAX_BODY_BYTES:
        raise _body_too_large()


def _limit_body(receive: Receive) -> Receive:
    """Raises when the body exceeds the limit, whatever Content-Length claims."""
    n_bytes = 0

    async def bounded() -> Message:
        nonlocal n_bytes
        message = await receive()
        n_bytes += len(message.get("body", b""))
        if n_bytes > MAX_BODY_BYTES:
            raise _body_too_large()
        return message

    return bounded


def _body_too_large() -> RequestError:
    return RequestError(413, f"the request body is longer than {MAX_BODY_BYTES:,} bytes")


# ---- sending a response ----


def _add_security_headers(send: Send) -> Send:
    """Adds headers that forbid framing, MIME sniffing, caching and cross-origin reads."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name.lower() for name, _ in message["headers"]}
            ours = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
            caching = [] if b"cache-control" in given else [(b"cache-control", b"no-store")]
            message = {**message, "headers": [*message["headers"], *ours, *caching]}
        await send(message)

    return sending
