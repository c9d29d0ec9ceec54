"""Every route of the page with each of its methods, taken from the routers: a new route is covered automatically."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fastapi.routing import APIRoute

from seedbed.web.server import ROUTERS

ROUTES = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
_PARAMETER = re.compile(r"{(\w+)(:path)?}")


def path_of(route: APIRoute, values: dict[str, str] | None = None) -> str:
    """The path of a route with these parameter values; missing ones are 1."""
    return _PARAMETER.sub(lambda match: (values or {}).get(match[1], "1"), route.path)


def parameters(route: APIRoute) -> list[str]:
    return [name for name, _ in _PARAMETER.findall(route.path)]


def all_requests() -> Iterator[tuple[str, str]]:
    """(method, path) of every route."""
    for route in ROUTES:
        for method in sorted(route.methods):
            yield method, path_of(route)
