# %% [markdown]
# # Grokking in five minutes
#
# A one-layer GPT learns a + b mod 23 from 62 % of all equations. It memorises them within a few hundred updates and
# finds the rule much later. Does weight decay drive that second step?

# %%
import os

import seedbed as sb

TINY = "SEEDBED_TINY" in os.environ  # a few updates of two seeds, to see that everything runs
overrides = {"train.weight_decay": [0.0, 0.3], **({"train.steps": 60, "train.save_every": 60} if TINY else {})}
study = sb.Study("quickstart", overrides, seeds=2 if TINY else 8)

# %% [markdown]
# What will be trained, and how long it takes here:

# %%
print(study.plan())

# %% [markdown]
# Interrupt it whenever you like; running the cell again continues.

# %%
study.run()

# %% [markdown]
# Best values over seeds. `t_f` is the step at which a curve is first at its best, Δt the delay of validation.

# %%
print(study.table())

# %%
print(study.compare("train.weight_decay", metric="val/accuracy"))

# %%
chart = study.plot(["train/accuracy", "val/accuracy"], colour="train.weight_decay", x_scale="log")
chart.save("grokking.svg")

# %% [markdown]
# Every evaluation is a row, so any other question is a line of pandas or polars:

# %%
results = study.results("val/accuracy")
last = {(row["train.weight_decay"], row["seed"]): row["value"] for row in results}  # later rows replace earlier ones
print(f"{sum(value > 0.9 for value in last.values())} of {len(last)} runs found the rule")

# %% [markdown]
# A trained run answers equations it never saw:

# %%
model = sb.load(study.runs(only={"train.weight_decay": 0.3})[0])
print(model.top_next_tokens("7 + 20 ="))
