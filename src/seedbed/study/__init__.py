"""The study language: from a TOML file to runs with stable ids, and from runs to packs; no torch.

file ─read→ Study ─plan→ Plan(runs) ─pack→ Packs

read.py      a file → Study, with every problem of the file in one pass
words.py     `key=value` on the command line, as overrides and as filters
plan.py      Study and words → Plan: runs with ids that depend on nothing but what decides their numbers
pack.py      runs → packs of equal shape that fit a machine
expand.py    the product of what varies, without what is excluded, has no effect or cannot be
shows.py     the figures and questions that a file declares
write.py     a plan as a study file again, and an example to begin with
parts.py     what a study is made of, and checks that file and words share
files.py     finding and reading files; lines.py, spell.py, exclude.py: their lines, their spelling, their expressions
library/     the shipped studies
"""
