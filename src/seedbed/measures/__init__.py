"""Pure functions from readings to named numbers with units; no torch, no store, no drawing.

`catalogue` names the numbers, `curves` takes them from one curve, `compare` spreads them over seeds, and `summary` does
all of it for whole points.
"""
