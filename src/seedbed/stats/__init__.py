"""Pure functions from readings to named numbers with units, and to sentences; no torch, no store, no drawing.

catalogue.py   what every metric and measure is called, its unit and meaning
curves.py      numbers of one curve: best, t_f, thresholds, gap, mean height; grokking.py, stopping.py: its stages
values.py      one number from one run; cost.py: compute, FLOPs, memory
summary.py     whole points over seeds; groups.py: which runs are compared with which
compare.py     mean ± std, intervals, comparisons; exact.py: tests that need no distribution
laws.py        laws of scale; scaling.py: from runs to laws, and the best use of a budget
copying.py     how much of a sample stands verbatim in the training text
answers/       a study's questions answered in sentences; words.py: numbers as a sentence says them
"""
