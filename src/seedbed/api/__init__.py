"""Python first: what `import seedbed` offers, and what the command line shares with it.

study.py            Study: planned and trained; study_reader.py: what is read of it
study_text.py       studies, overrides and filters as Python values
tidy_results.py     evaluations as rows, DataFrames and files
table_views.py      tables, answer_views.py: comparisons and answers, as text and as HTML
planning.py         packs and estimates of a plan; training_session.py: training with Ctrl-C and a progress display
archives.py         runs as one file, for another machine
homes.py            the home that is used where none is given, and the trained models in it
"""
