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
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

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


class RequestError(Exception):
    """A rejected request, with the HTTP status and message to send."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


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
        names = dict.fromkeys((_bracket_ipv6(host), *LOOPBACK_HOSTS) if is_loopback(host) else (_bracket_ipv6(host),))
        hosts = {f"{name}:{port}" for name in names} | {name for name in names if port == 80}
        # Browsers share cookies between ports of a host; the port in the name keeps two servers apart.
        cookie, origins = f"seedbed-{port}", frozenset(f"http://{one}" for one in hosts)
        return cls(frozenset(hosts), origins, f"http://{_bracket_ipv6(host)}:{port}", cookie, _new_token())

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
        try:
            self._check_source(scope)
            if (target := self._redirect_target(scope)) is not None:
                await _send_redirect(
                    send, target, f"{self.cookie_name}={self.token}; Path=/; HttpOnly; SameSite=Strict"
                )
                return
            self._check_token(scope)
            _check_body(scope)
            await app(scope, _limit_body(receive), send)
        except RequestError as error:
            await _send_error(send, error)

    def _check_source(self, scope: Scope) -> None:
        """Checks Host, Origin, Sec-Fetch-Site, method and query length."""
        hosts, origins = list(_header_values(scope, b"host")), list(_header_values(scope, b"origin"))
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            raise RequestError(421, f"this server answers to {', '.join(sorted(self.hosts))} only")
        if scope["method"] not in ALLOWED_METHODS:
            raise RequestError(405, f"the page uses {', '.join(ALLOWED_METHODS)} only")
        if len(origins) > 1 or not self.origins.issuperset(origins):
            raise RequestError(403, "requests from other origins are rejected")
        if scope["method"] == "POST" and not origins:
            raise RequestError(403, "a POST request must have an Origin header")
        if _first_header(scope, b"sec-fetch-site") not in ("", "none", "same-origin") and not _is_navigation(scope):
            raise RequestError(403, "requests from other sites are rejected")
        if len(scope["query_string"]) > MAX_QUERY_CHARACTERS:
            raise RequestError(414, f"the query is longer than {MAX_QUERY_CHARACTERS:,} characters")

    def _redirect_target(self, scope: Scope) -> str | None:
        """For a URL with the token, the same URL without it; None for a URL without one."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if not given or scope["method"] != "GET":
            return None
        if len(given) > 1 or not self._is_valid_token(given[0]):
            raise RequestError(403, f"this token is not valid: {MISSING_TOKEN_MESSAGE}")
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        path = "/" + quote(scope["path"].lstrip("/\\"), safe="/")  # `//` would redirect to another host
        return f"{path}?{rest}" if rest else path

    def _check_token(self, scope: Scope) -> None:
        given = _first_header(scope, b"x-seedbed-token") or _cookie_value(scope, self.cookie_name)
        if not self._is_valid_token(given):
            raise RequestError(403, MISSING_TOKEN_MESSAGE)

    def _is_valid_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


def _new_token() -> str:
    return secrets.token_urlsafe(24)


def _bracket_ipv6(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


# ---- reading a request ----


def _header_values(scope: Scope, name: bytes) -> Iterator[str]:
    return (value.decode("latin-1") for given, value in scope["headers"] if given.lower() == name)


def _first_header(scope: Scope, name: bytes) -> str:
    return next(_header_values(scope, name), "")


def _is_navigation(scope: Scope) -> bool:
    """Whether the user followed a link; the SameSite cookie is not sent then, so only the token gives access."""
    return scope["method"] == "GET" and _first_header(scope, b"sec-fetch-mode") == "navigate"


def _cookie_value(scope: Scope, name: str) -> str:
    try:
        found = SimpleCookie("; ".join(_header_values(scope, b"cookie"))).get(name)
    except CookieError:
        return ""
    return found.value if found else ""


def _check_body(scope: Scope) -> None:
    if scope["method"] != "POST":
        return
    if _first_header(scope, b"content-type").partition(";")[0].strip().lower() != "application/json":
        raise RequestError(415, "the body must be JSON (content-type: application/json)")
    length = _first_header(scope, b"content-length")
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


async def _send_error(send: Send, error: RequestError) -> None:
    body = f"seedbed: {error.message}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    if error.status == 405:
        headers.append((b"allow", ", ".join(ALLOWED_METHODS).encode()))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_redirect(send: Send, target: str, cookie: str) -> None:
    headers = [(b"location", target.encode()), (b"set-cookie", cookie.encode()), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
