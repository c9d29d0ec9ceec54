"""One file a view, each with a `router`; `app.ROUTERS` lists them."""
