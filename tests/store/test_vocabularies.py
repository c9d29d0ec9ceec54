"""A damaged vocabulary is one sentence, and is written anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import update

from seedbed.errors import StoreError
from seedbed.records import Vocabulary
from seedbed.store import open_store
from seedbed.store.checkpoints import digest_bytes
from seedbed.store.schema import vocabularies


@pytest.mark.parametrize("with_its_digest", [False, True])
def test_a_damaged_vocabulary_is_named_and_can_be_replaced(tmp_path: Path, with_its_digest: bool) -> None:
    with open_store(tmp_path) as store:
        store.save_vocabulary("text/1/aa", Vocabulary("characters", ("<pad>", "a")))
        damaged = {"content": b"?"} | ({"digest": digest_bytes(b"?")} if with_its_digest else {})
        with store._database.transaction() as connection:
            connection.execute(update(vocabularies).values(damaged))
        with pytest.raises(StoreError, match=r"the vocabulary of dataset text/1/aa in .*store\.db is damaged; running"):
            store.load_vocabulary("text/1/aa")
        store.save_vocabulary("text/1/aa", Vocabulary("bytes", ()))
        assert store.load_vocabulary("text/1/aa") == Vocabulary("bytes", ())
