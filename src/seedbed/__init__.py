"""A laboratory for small sequence models: a study file in, answers with uncertainty out."""

__version__ = "0.1.0.dev0"
