# %% [markdown]
# # Your own text, your own labels
#
# A text file or a folder of them becomes a language model, and a table of labelled texts a classifier. Here both are
# made up on the spot; put your own path in their place.

# %%
import csv
import os
import random
from pathlib import Path

import seedbed as sb

TINY = "SEEDBED_TINY" in os.environ  # a few updates, to see that everything runs

# %%
draw = random.Random(0)
weather = ["rain over the {}", "a clear sky above the {}", "fog in the {}", "snow on the {}"]
sport = ["a late goal in the {}", "a new record at the {}", "the team won in the {}", "a draw in the {}"]
places = ["valley", "harbour", "north", "old town", "mountains", "stadium"]
rows = [
    (label, draw.choice(sentences).format(draw.choice(places)))
    for label, sentences in [("weather", weather), ("sport", sport)] * (60 if TINY else 300)
]
Path("news.txt").write_text("\n".join(sentence for _, sentence in rows), encoding="utf-8")
with Path("news.csv").open("w", encoding="utf-8", newline="") as file:
    csv.writer(file).writerows([("label", "text"), *rows])

# %% [markdown]
# ## A language model
#
# The characters of the text are its vocabulary; `tokenizer="bpe"` or `"words"` gives others.

# %%
language = sb.Study(
    name="news-language",
    base={
        "task": {"kind": "text", "corpus": "news.txt", "tokenizer": "characters", "length": 32},
        "model": {"kind": "gpt", "layers": 2, "heads": 2, "dim": 32},
        "train": {"steps": 30 if TINY else 1500, "batch_size": 16, "eval_first": 0, "eval_every": 30 if TINY else 100},
    },
    seeds=1,
).run()
model = language.load()[0]
print(model.sample("snow ", tokens=60)[0])
print(model.surprisal("snow on the harbour"))

# %% [markdown]
# ## A classifier

# %%
classifier = sb.Study(
    name="news-classifier",
    base={
        "task": {"kind": "labels", "corpus": "news.csv", "tokenizer": "words", "length": 12},
        "model": {"kind": "encoder", "layers": 1, "heads": 2, "dim": 32},
        "train": {"steps": 30 if TINY else 300, "batch_size": 16, "eval_first": 0, "eval_every": 30 if TINY else 50},
    },
    seeds=3,
).run()
print(classifier.table())
print(classifier.load()[0].classify("fog in the stadium"))
