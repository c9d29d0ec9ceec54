"""Every route of the page with every method it has, taken from the router itself: a new one is covered by default."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fastapi.routing import APIRoute

from seedbed.web.app import ROUTERS

ROUTES = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
_PARAMETER = re.compile(r"{(\w+)(:path)?}")


def place(route: APIRoute, values: dict[str, str] | None = None) -> str:
    """The path of a route with these values, or with others that are as good."""
    return _PARAMETER.sub(lambda found: (values or {}).get(found[1], "1"), route.path)


def parameters(route: APIRoute) -> list[str]:
    return [name for name, _ in _PARAMETER.findall(route.path)]


def places() -> Iterator[tuple[str, str]]:
    """(method, path) of everything that can be asked for."""
    for route in ROUTES:
        for method in sorted(route.methods):
            yield method, place(route)
