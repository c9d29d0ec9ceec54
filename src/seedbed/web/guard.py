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

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
METHODS: Final = ("GET", "HEAD", "POST")
MOST_BYTES: Final = 1_000_000  # of a request's body
MOST_QUERY: Final = 16_000  # signs of an address
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
NO_TOKEN: Final = "open the address that `seedbed serve` printed, with its token; it is new with every start"


class Refused(Exception):
    """A request that is turned away, with the status and the sentence it gets."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


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
    home: str  # scheme, host and port
    cookie: str
    token: str = field(repr=False)

    @property
    def address(self) -> str:
        """What to open: the token in it becomes a cookie."""
        return f"{self.home}/?token={self.token}"

    @classmethod
    def fresh(cls, host: str, port: int) -> Guard:
        """A guard with a new token, for a server at this address."""
        names = dict.fromkeys((_bracketed(host), *LOOPBACK) if is_loopback(host) else (_bracketed(host),))
        hosts = {f"{name}:{port}" for name in names} | {name for name in names if port == 80}
        # Cookies are shared between the ports of a host: the name keeps two servers from taking each other's.
        cookie, origins = f"seedbed-{port}", frozenset(f"http://{one}" for one in hosts)
        return cls(frozenset(hosts), origins, f"http://{_bracketed(host)}:{port}", cookie, _new_token())

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """The application behind this guard."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                await app(scope, receive, send)
            elif scope["type"] == "http":
                await self._answer(app, scope, receive, _with_headers(send))
            else:  # a WebSocket: the page has none
                await send({"type": "websocket.close", "code": 1008})

        return guarded

    async def _answer(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check_source(scope)
            if (place := self._place_after_token(scope)) is not None:
                await _redirect(send, place, f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict")
                return
            self._check_token(scope)
            _check_body(scope)
            await app(scope, _bounded(receive), send)
        except Refused as refused:
            await _refuse(send, refused)

    def _check_source(self, scope: Scope) -> None:
        """From where: one Host and Origin that are ours, and a method that the page has."""
        hosts, origins = list(_values(scope, b"host")), list(_values(scope, b"origin"))
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            raise Refused(421, f"this server answers to {', '.join(sorted(self.hosts))} only")
        if scope["method"] not in METHODS:
            raise Refused(405, f"the page uses {', '.join(METHODS)} only")
        if len(origins) > 1 or not self.origins.issuperset(origins):
            raise Refused(403, "requests from other origins are refused")
        if scope["method"] == "POST" and not origins:
            raise Refused(403, "a request that changes something must say its Origin")
        if _first(scope, b"sec-fetch-site") not in ("", "none", "same-origin") and not _is_navigation(scope):
            raise Refused(403, "requests from other sites are refused")
        if len(scope["query_string"]) > MOST_QUERY:
            raise Refused(414, f"the address is longer than {MOST_QUERY:,} signs")

    def _place_after_token(self, scope: Scope) -> str | None:
        """Where to go when the address carries the token: the same place without it; None when it carries none."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if not given or scope["method"] != "GET":
            return None
        if len(given) > 1 or not self._is_token(given[0]):
            raise Refused(403, f"this token is not the one of this start: {NO_TOKEN}")
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        path = "/" + quote(scope["path"].lstrip("/\\"), safe="/")  # two slashes would lead to another host
        return f"{path}?{rest}" if rest else path

    def _check_token(self, scope: Scope) -> None:
        given = _first(scope, b"x-seedbed-token") or _cookie(scope, self.cookie)
        if not self._is_token(given):
            raise Refused(403, NO_TOKEN)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


def _new_token() -> str:
    return secrets.token_urlsafe(24)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


# ---- what a request says ----


def _values(scope: Scope, name: bytes) -> Iterator[str]:
    return (value.decode("latin-1") for given, value in scope["headers"] if given.lower() == name)


def _first(scope: Scope, name: bytes) -> str:
    return next(_values(scope, name), "")


def _is_navigation(scope: Scope) -> bool:
    """A link that a person followed; the cookie is not sent along, so that only the token opens the page."""
    return scope["method"] == "GET" and _first(scope, b"sec-fetch-mode") == "navigate"


def _cookie(scope: Scope, name: str) -> str:
    try:
        found = SimpleCookie("; ".join(_values(scope, b"cookie"))).get(name)
    except CookieError:
        return ""
    return found.value if found else ""


def _check_body(scope: Scope) -> None:
    if scope["method"] != "POST":
        return
    if _first(scope, b"content-type").partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "a request that changes something is JSON: content-type application/json")
    length = _first(scope, b"content-length")
    if length.isdigit() and int(length) > MOST_BYTES:
        raise _too_long()


def _bounded(receive: Receive) -> Receive:
    """The same body, which ends in a refusal where it is longer than it may be, whatever its length was said to be."""
    n_bytes = 0

    async def bounded() -> Message:
        nonlocal n_bytes
        message = await receive()
        n_bytes += len(message.get("body", b""))
        if n_bytes > MOST_BYTES:
            raise _too_long()
        return message

    return bounded


def _too_long() -> Refused:
    return Refused(413, f"the request is longer than {MOST_BYTES:,} bytes")


# ---- what it gets ----


def _with_headers(send: Send) -> Send:
    """Every answer says that it is not to be framed, sniffed, kept, or read by others."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name.lower() for name, _ in message["headers"]}
            ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            kept = [] if b"cache-control" in given else [(b"cache-control", b"no-store")]
            message = {**message, "headers": [*message["headers"], *ours, *kept]}
        await send(message)

    return sending


async def _refuse(send: Send, refused: Refused) -> None:
    body = f"seedbed: {refused.sentence}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    if refused.status == 405:
        headers.append((b"allow", ", ".join(METHODS).encode()))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _redirect(send: Send, place: str, cookie: str) -> None:
    headers = [(b"location", place.encode()), (b"set-cookie", cookie.encode()), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
