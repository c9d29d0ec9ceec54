"""The study language: from a TOML file to runs with stable ids, and from runs to packs; no torch.

file ─read→ Study ─plan→ Plan(runs) ─pack→ Packs

read.py      a file → Study, with every problem of the file in one pass
overrides.py `key=value` arguments of the command line, as overrides and as filters
plan.py      Study and overrides → Plan: runs whose ids depend only on what determines their results
pack.py      runs → packs of equal shape that fit the machine
expand.py    Study → configs: the product of all factors, less exclusions, inactive settings and conflicts
declarations.py  the figures and questions that a file declares
write.py     a plan as a resolved study file, and the example study
definition.py    Study, Assignment, Factor, Problems, and the checks shared by files and overrides
study_files.py   finding and reading study files; toml_scanner.py: line numbers and limits;
             toml_format.py: values as TOML and spelling hints; exclude.py: exclude expressions
library/     the shipped studies
"""
