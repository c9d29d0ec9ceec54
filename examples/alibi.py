# %% [markdown]
# # Is ALiBi worth it?
#
# ALiBi replaces learned position embeddings by a penalty on distant tokens. Two questions for a small language model:
# is its loss as low at the length it was trained on, and does it stay low on longer contexts, where learned positions
# cannot be used at all?

# %%
import os
import random
from pathlib import Path

import seedbed as sb

TINY = "SEEDBED_TINY" in os.environ  # a few updates of two seeds, to see that everything runs

# %% [markdown]
# A text in which a word depends on one many words before: what a speaker saw is what they tell at the end.

# %%
draw = random.Random(0)
animals, places = ["fox", "owl", "hare", "wren", "toad"], ["hill", "mill", "ford", "barn", "well", "gate"]
stories = []
for _ in range(400 if TINY else 4000):
    animal = draw.choice(animals)
    walk = " , then ".join(f"to the {draw.choice(places)}" for _ in range(draw.randint(1, 4)))
    stories.append(f"she saw a {animal} and went {walk} , and told them of the {animal} .")
Path("stories.txt").write_text("\n".join(stories), encoding="utf-8")

# %%
study = sb.Study(
    name="is-alibi-worth-it",
    question="Is ALiBi as good as learned positions, and does it read longer contexts?",
    base={
        "task": {"kind": "text", "corpus": "stories.txt", "tokenizer": "words", "length": 32, "lengths": [64, 128]},
        "model": {"kind": "gpt", "layers": 2, "heads": 2, "dim": 32},
        "train": {
            "steps": 20 if TINY else 1000,
            "batch_size": 16,
            "eval_every": 10 if TINY else 100,
            "eval_batches": 4,
        },
    },
    grid={"model.positions": ["learned", "alibi"]},
    seeds=2 if TINY else 6,
    questions=[
        {
            "ask": "which is better",
            "text": "Is validation loss lower with ALiBi?",
            "metric": "val/loss",
            "between": "model.positions",
        },
    ],
)
study.run()

# %%
print(study.answer())

# %% [markdown]
# Longer contexts are metrics of their own; with learned positions, whose table ends at 32 tokens, there are none.

# %%
results = study.results(["val/perplexity", "val/perplexity[length=64]", "val/perplexity[length=128]"])
last = {(row["model.positions"], row["metric"], row["seed"]): row["value"] for row in results}  # the last step's
for positions, metric in sorted({key[:2] for key in last}):
    values = [value for key, value in last.items() if key[:2] == (positions, metric)]
    print(f"{positions:8} {metric:28} {sum(values) / len(values):.3f}")

# %%
study.plot("val/loss", colour="model.positions").save("alibi.svg")
