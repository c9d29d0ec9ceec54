"""Vocabularies as rows of the database: compressed JSON with its digest, verified when it is read."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict
from typing import Any

from seedbed.errors import StoreError
from seedbed.records import Vocabulary
from seedbed.store.checkpoints import digest_bytes
from seedbed.store.digests import DamagedRow, verified, with_digest
from seedbed.store.schema import AnyRow, vocabularies


def vocabulary_to_row(dataset: str, vocabulary: Vocabulary, created: str) -> dict[str, Any]:
    """The row of a dataset's vocabulary."""
    content = zlib.compress(json.dumps(asdict(vocabulary), separators=(",", ":")).encode())
    row = {"dataset": dataset, "created": created, "content": content, "digest": digest_bytes(content)}
    return with_digest(vocabularies, row)


def vocabulary_from_row(row: AnyRow, address: str) -> Vocabulary:
    """The vocabulary in a row; StoreError if its content does not match its digest or cannot be understood."""
    damaged = (
        f"the vocabulary of dataset {row.dataset} in {address} is damaged; running its study again writes it anew, "
        "if its text is still there"
    )
    try:
        verified(vocabularies, [row])
        if digest_bytes(row.content) != row.digest:
            raise StoreError(damaged)
        stored = json.loads(zlib.decompress(row.content))
        merges = tuple((left, right) for left, right in stored["merges"])
        return Vocabulary(stored["tokenizer"], tuple(stored["tokens"]), merges, tuple(stored["label_names"]))
    except (DamagedRow, zlib.error, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{damaged} ({error})") from error
