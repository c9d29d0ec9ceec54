"""The study language: from a TOML file to runs with stable ids, and from runs to packs; no torch.

file ─read→ Study ─plan→ Plan(runs) ─pack→ Packs

read.py      a file → Study, with every problem of the file in one pass; `key=value` arguments → overrides
plan.py      Study and overrides → Plan: runs whose ids depend only on what determines their results
pack.py      runs → packs of equal shape that fit the machine
expand.py    Study → configs: the product of all factors, less exclusions, inactive settings and conflicts
declarations.py  the figures and questions that a file declares
definition.py    Study, Assignment, Factor, Overrides, Problems, and the checks shared by files and arguments
conditions.py    filters of runs (`--only`) and exclude expressions
ranges.py, random_search.py  several values of a setting: listed, or drawn
study_files.py   finding and reading study files; toml_text.py: parsing, line numbers and limits, values as TOML
run_data.py      whether the text of a stored run is still what it was trained on
library/     the shipped studies
"""
