"""One module per page, each with a `router`; `app.ROUTERS` lists them."""
