"""Who may ask for what: every request passes here before any route sees it, whatever its path or method.

    guard = Guard.fresh("127.0.0.1", 8765)
    guard.address                            http://127.0.0.1:8765/?token=…

A page on loopback can be reached by every other page that its user opens, so each request is held against lists of
what is allowed, by exact comparison: one known Host (against DNS rebinding), one known Origin where there is one, a
token that is new with every start, three methods, JSON bodies of a bounded size. Nothing is inferred from a browser's
name. What a request means is left to the views.
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
MAX_BODY_BYTES: Final = 1_000_000  # of a request's body
MAX_QUERY_CHARACTERS: Final = 16_000  # signs of an address
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
    "open the address that `seedbed serve` printed, with its token; it is new with every start"
)


class RequestError(Exception):
    """A request that is turned away, with the status and the sentence it gets."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Guard:
    """What one start of the server accepts."""

    hosts: frozenset[str]
    origins: frozenset[str]
    base_url: str  # scheme, host and port
    cookie_name: str
    token: str = field(repr=False)

    @property
    def login_url(self) -> str:
        """What to open: the token in it becomes a cookie."""
        return f"{self.base_url}/?token={self.token}"

    @classmethod
    def create(cls, host: str, port: int) -> Guard:
        """A guard with a new token, for a server at this address."""
        names = dict.fromkeys((_bracket_ipv6(host), *LOOPBACK_HOSTS) if is_loopback(host) else (_bracket_ipv6(host),))
        hosts = {f"{name}:{port}" for name in names} | {name for name in names if port == 80}
        # Cookies are shared between the ports of a host: the name keeps two servers from taking each other's.
        cookie, origins = f"seedbed-{port}", frozenset(f"http://{one}" for one in hosts)
        return cls(frozenset(hosts), origins, f"http://{_bracket_ipv6(host)}:{port}", cookie, _new_token())

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """The application behind this guard."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                await app(scope, receive, send)
            elif scope["type"] == "http":
                await self._handle(app, scope, receive, _add_security_headers(send))
            else:  # a WebSocket: the page has none
                await send({"type": "websocket.close", "code": 1008})

        return guarded

    async def _handle(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check_source(scope)
            if (place := self._redirect_target(scope)) is not None:
                await _send_redirect(send, place, f"{self.cookie_name}={self.token}; Path=/; HttpOnly; SameSite=Strict")
                return
            self._check_token(scope)
            _check_body(scope)
            await app(scope, _limit_body(receive), send)
        except RequestError as refused:
            await _send_error(send, refused)

    def _check_source(self, scope: Scope) -> None:
        """From where: one Host and Origin that are ours, and a method that the page has."""
        hosts, origins = list(_header_values(scope, b"host")), list(_header_values(scope, b"origin"))
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            raise RequestError(421, f"this server answers to {', '.join(sorted(self.hosts))} only")
        if scope["method"] not in ALLOWED_METHODS:
            raise RequestError(405, f"the page uses {', '.join(ALLOWED_METHODS)} only")
        if len(origins) > 1 or not self.origins.issuperset(origins):
            raise RequestError(403, "requests from other origins are refused")
        if scope["method"] == "POST" and not origins:
            raise RequestError(403, "a request that changes something must say its Origin")
        if _first_header(scope, b"sec-fetch-site") not in ("", "none", "same-origin") and not _is_navigation(scope):
            raise RequestError(403, "requests from other sites are refused")
        if len(scope["query_string"]) > MAX_QUERY_CHARACTERS:
            raise RequestError(414, f"the address is longer than {MAX_QUERY_CHARACTERS:,} signs")

    def _redirect_target(self, scope: Scope) -> str | None:
        """Where to go when the address carries the token: the same place without it; None when it carries none."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if not given or scope["method"] != "GET":
            return None
        if len(given) > 1 or not self._is_valid_token(given[0]):
            raise RequestError(403, f"this token is not the one of this start: {MISSING_TOKEN_MESSAGE}")
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        path = "/" + quote(scope["path"].lstrip("/\\"), safe="/")  # two slashes would lead to another host
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


# ---- what a request says ----


def _header_values(scope: Scope, name: bytes) -> Iterator[str]:
    return (value.decode("latin-1") for given, value in scope["headers"] if given.lower() == name)


def _first_header(scope: Scope, name: bytes) -> str:
    return next(_header_values(scope, name), "")


def _is_navigation(scope: Scope) -> bool:
    """A link that a person followed; the cookie is not sent along, so that only the token opens the page."""
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
        raise RequestError(415, "a request that changes something is JSON: content-type application/json")
    length = _first_header(scope, b"content-length")
    if length.isdigit() and int(length) > MAX_BODY_BYTES:
        raise _body_too_large()


def _limit_body(receive: Receive) -> Receive:
    """The same body, which ends in a refusal where it is longer than it may be, whatever its length was said to be."""
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
    return RequestError(413, f"the request is longer than {MAX_BODY_BYTES:,} bytes")


# ---- what it gets ----


def _add_security_headers(send: Send) -> Send:
    """Every answer says that it is not to be framed, sniffed, kept, or read by others."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name.lower() for name, _ in message["headers"]}
            ours = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
            kept = [] if b"cache-control" in given else [(b"cache-control", b"no-store")]
            message = {**message, "headers": [*message["headers"], *ours, *kept]}
        await send(message)

    return sending


async def _send_error(send: Send, refused: RequestError) -> None:
    body = f"seedbed: {refused.message}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    if refused.status == 405:
        headers.append((b"allow", ", ".join(ALLOWED_METHODS).encode()))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_redirect(send: Send, place: str, cookie: str) -> None:
    headers = [(b"location", place.encode()), (b"set-cookie", cookie.encode()), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
