"""The web page of `seedbed serve`: monitor studies, compare runs and inspect models of one store from a browser."""
