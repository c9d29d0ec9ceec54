"""Pure functions from metric curves to statistics with units, and to sentences; no torch, no store, no drawing.

metric_registry.py    name, symbol, unit and meaning of every metric
curve_statistics.py   one curve: best, t_f, thresholds, gap, mean; grokking.py, stopping_advice.py: its phases
run_statistics.py     the registry of statistics, one number per run
chance.py             what a model achieves that ignores its inputs; survival.py: times that some runs never reach
summary.py            configs summarised over seeds; groups.py: which runs are compared with which
optimum.py            which values cannot be told from the best; importance.py: the best config, what matters
comparison.py         mean ± std, confidence intervals, comparisons; permutation_tests.py: distribution-free tests;
                      t_tests.py: t tests for skewed values and unequal spreads
scaling_laws.py       scaling laws; compute_budget.py: fitting them to runs, and the best use of a compute budget
attention_stats.py    statistics of attention heads; fourier.py: Fourier structure of modular arithmetic
copying.py            how much of a sample occurs verbatim in the training text
answers/              answers to a study's questions, in sentences
"""
