"""The `serve` command: the web page of a store."""

from __future__ import annotations

from typing import Annotated

import typer

from seedbed.cli.common import DEFAULT_HOME, HomeOption, app, handle_errors


@app.command(epilog="Example: seedbed serve --port 8765 --no-browser")
@handle_errors
def serve(
    home: HomeOption = DEFAULT_HOME,
    port: Annotated[int, typer.Option(min=0, max=65535, help="port to listen on; 0: any free port")] = 8765,
    host: Annotated[
        str, typer.Option(help="address to listen on; beyond loopback, other machines can connect")
    ] = "127.0.0.1",
    browser: Annotated[bool, typer.Option(help="open the page in a browser")] = True,
) -> None:
    """Serve the web interface: monitor and start studies, compare runs, inspect and sample models; Ctrl-C stops it."""
    from seedbed.web.server import serve as serve_page

    serve_page(home, host, port, browser)
