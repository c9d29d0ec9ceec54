"""Named corpora are located, downloaded from a local test server and verified; user files are found by path."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from seedbed.data import catalogue, embeddings
from seedbed.data.catalogue import CATALOGUE, CorpusEntry, CorpusPart, StoredFile, ensure_local_file, get_corpus_entry
from seedbed.data.corpora import load_gpt1_tokenizer, open_corpus, open_labelled_texts
from seedbed.data.datasets import open_token_ids
from seedbed.data.documents import corpus_digest, iter_text
from seedbed.data.embeddings import embeddings_digest, load_embeddings
from seedbed.errors import MissingData, UsageError
from seedbed.settings import DatasetInfo, Settings

CONTENT = b"to be or not to be\n" * 500
FOLDER = {"b.txt": b"second", "a.txt": b"first"}


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        others = {"../../evil.txt": b"out", "texts/deep/c.txt": b"not direct", "texts/readme.md": b"no text"}
        for name, content in {f"texts/{k}": v for k, v in FOLDER.items()}.items() | others.items():
            member = tarfile.TarInfo(f"repo-abc/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


class Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.responses: dict[str, bytes] = {"/me/repo/abc/whole.txt": CONTENT, "/me/repo/tar.gz/abc": archive()}
        self.requested: list[str] = []
        self.n_truncated_bytes = 0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requested.append(self.path)
        content = self.server.responses.get(self.path)
        self.send_response(200 if content is not None else 404)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write((content or b"")[: len(content or b"") - self.server.n_truncated_bytes])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(empty_cache, monkeypatch):
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(catalogue, "RAW_FILE_HOST", url)
        monkeypatch.setattr(catalogue, "ARCHIVE_HOST", url)
        yield server
        server.shutdown()


WHOLE = StoredFile("texts/whole.txt", sha(CONTENT), len(CONTENT), "whole.txt")
TEXTS = StoredFile("texts/folder", sha(b"firstsecond"), 11, "texts", is_folder=True)


@pytest.fixture
def entry(monkeypatch) -> CorpusEntry:
    parts = (CorpusPart("train", "text", (WHOLE,)), CorpusPart("folder", "text", (TEXTS,)))
    entry = CorpusEntry("mine", "a test", "none", parts, "me/repo", "abc")
    monkeypatch.setitem(CATALOGUE, "mine", entry)
    return entry


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_corpus_is_downloaded_once_and_then_read_from_the_cache(server, entry, empty_cache):
    calls = []
    path = ensure_local_file(entry, WHOLE, lambda *call: calls.append(call))
    assert path.read_bytes() == CONTENT
    assert calls[-1] == ("whole.txt", len(CONTENT), len(CONTENT))
    assert open_corpus("mine").documents[0].path == path
    assert server.requested == ["/me/repo/abc/whole.txt"]
    assert files_in(empty_cache) == ["texts/whole.txt"]


def test_a_folder_is_extracted_from_the_archive_of_its_commit(server, entry, empty_cache):
    corpus = open_corpus("mine", "folder")
    assert ["".join(iter_text(document)) for document in corpus.documents] == ["first", "second"]
    assert files_in(empty_cache) == ["texts/folder/a.txt", "texts/folder/b.txt"]
    assert not (empty_cache.parent / "evil.txt").exists()


def test_content_with_a_wrong_digest_is_rejected_and_leaves_no_files(server, entry, empty_cache):
    server.responses["/me/repo/abc/whole.txt"] = CONTENT + b"more"
    with pytest.raises(MissingData, match="mine could not be downloaded from me/repo"):
        ensure_local_file(entry, WHOLE)
    assert files_in(empty_cache) == []


def test_a_folder_larger_than_pinned_is_rejected_and_leaves_no_files(server, entry, empty_cache):
    small = StoredFile("texts/folder", sha(b"firstsecond"), 10, "texts", is_folder=True)
    with pytest.raises(MissingData, match="holds more than 10 bytes"):
        ensure_local_file(entry, small)
    assert files_in(empty_cache) == []


@pytest.mark.parametrize("file", [WHOLE, TEXTS])
def test_a_broken_connection_leaves_no_partial_file_and_can_be_retried(server, entry, empty_cache, file):
    server.n_truncated_bytes = 20
    with pytest.raises(MissingData, match="try again"):
        ensure_local_file(entry, file)
    assert files_in(empty_cache) == []
    server.n_truncated_bytes = 0
    assert ensure_local_file(entry, file).exists()


def test_a_missing_file_is_reported_with_the_path_to_put_it_at(server, entry):
    server.responses.clear()
    with pytest.raises(MissingData, match=r"404.*SEEDBED_DATA, at texts/whole\.txt"):
        ensure_local_file(entry, WHOLE)


def test_offline_mode_sends_no_request_and_says_what_to_do(server, entry, monkeypatch):
    monkeypatch.setenv("SEEDBED_OFFLINE", "1")
    with pytest.raises(MissingData, match="SEEDBED_OFFLINE forbids the network") as error:
        open_corpus("mine")
    assert error.value.exit_code == 4
    assert server.requested == []


def test_the_data_folder_takes_precedence_over_the_cache_and_is_verified(server, entry, monkeypatch, tmp_path):
    folder = tmp_path / "data"
    (folder / "texts").mkdir(parents=True)
    (folder / "texts/whole.txt").write_bytes(CONTENT)
    monkeypatch.setenv("SEEDBED_DATA", str(folder))
    assert ensure_local_file(entry, WHOLE) == folder / "texts/whole.txt"
    (folder / "texts/whole.txt").write_bytes(CONTENT[:-1])
    with pytest.raises(MissingData, match="is not mine as pinned"):
        ensure_local_file(entry, WHOLE)
    monkeypatch.setenv("SEEDBED_DATA", str(tmp_path / "none"))
    with pytest.raises(MissingData, match="is not a folder"):
        ensure_local_file(entry, WHOLE)


def test_a_derived_corpus_is_reported_as_not_downloadable(empty_cache):
    with pytest.raises(
        MissingData, match=r"bialik is derived from .* put it at SEEDBED_DATA/hebrew_poems/bialik_poems"
    ):
        open_corpus("bialik")


def test_python_docs_are_always_available(empty_cache, monkeypatch):
    monkeypatch.setenv("SEEDBED_OFFLINE", "1")
    corpus = open_corpus("python-docs")
    names = [document.name for document in corpus.documents]
    assert names == sorted(names)
    assert "lambda" in names
    assert corpus_digest(corpus) == corpus_digest(open_corpus("python-docs"))


def test_a_path_of_ones_own_is_relative_to_the_current_folder(empty_cache, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("only here")
    monkeypatch.chdir(tmp_path)
    assert "".join(iter_text(open_corpus("a.txt").documents[0])) == "only here"
    with pytest.raises(
        MissingData, match=r"b\.txt: not a file, a folder or a named corpus; expected a path relative to"
    ):
        open_corpus("b.txt")


def test_an_unknown_name_is_reported_with_a_suggestion(empty_cache):
    with pytest.raises(MissingData, match="did you mean shakespeare"):
        open_corpus("shakespear")
    with pytest.raises(MissingData, match="did you mean wikitext2"):
        get_corpus_entry("wikitext")
    with pytest.raises(UsageError, match="it has classifier/train, classifier/test, train, obama, hbush, wbush"):
        open_corpus("speeches", "test")


def test_a_part_of_another_kind_is_rejected(empty_cache):
    with pytest.raises(UsageError, match="wikitext2 train is ids, not text"):
        open_corpus("wikitext2")
    with pytest.raises(UsageError, match="has no labels"):
        open_labelled_texts("speeches", "obama")
    with pytest.raises(UsageError, match="not stored ids"):
        open_token_ids("speeches", "train")


def test_every_entry_is_pinned_to_a_full_commit_and_digest():
    for entry in CATALOGUE.values():
        files = [file for part in entry.parts for file in part.files]
        assert len({part.name for part in entry.parts}) == len(entry.parts)
        assert entry.name == "python-docs" or (len(entry.commit) == 40 and files)
        assert all(len(file.sha256) == 64 and file.n_bytes > 0 for file in files)


def test_every_real_file_has_the_catalogued_size_and_digest(real_data):
    for entry in CATALOGUE.values():
        for part in entry.parts:
            for file in part.files:
                path = ensure_local_file(entry, file)
                n_bytes = (
                    sum(child.stat().st_size for child in path.iterdir()) if file.is_folder else path.stat().st_size
                )
                assert path.is_relative_to(real_data)
                assert n_bytes == file.n_bytes


def test_gpt1s_tokenizer_loads(real_data):
    assert load_gpt1_tokenizer().size == 40_479


# ---- GPT-1's embeddings ----

TABLES = {"positions": np.arange(12, dtype="f4").reshape(4, 3), "tokens": np.arange(100, 115, dtype="f4").reshape(5, 3)}


@pytest.fixture
def gpt1(server, monkeypatch):
    """A repository of small tables, cut into files in the middle of a table; the last file is not needed."""
    numbers = np.concatenate([TABLES["positions"].ravel(), TABLES["tokens"].ravel(), np.zeros(10, "f4")])
    files = {"params_shapes.json": json.dumps([[4, 3], [5, 3], [10]]).encode()}
    for i, part in enumerate([numbers[:9], numbers[9:28], numbers[28:]]):
        buffer = io.BytesIO()
        np.save(buffer, part)
        files[f"params_{i}.npy"] = buffer.getvalue()
    repository, commit = embeddings.GPT1_REPOSITORY, embeddings.GPT1_COMMIT
    blobs = {name: hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() for name, content in files.items()}
    listing = json.dumps([{"name": name, "sha": blob} for name, blob in blobs.items()]).encode()
    server.responses = {f"/{repository}/{commit}/model/{name}": content for name, content in files.items()}
    server.responses[f"/repos/{repository}/contents/model?ref={commit}"] = listing
    monkeypatch.setattr(embeddings, "API_HOST", f"http://127.0.0.1:{server.server_port}")
    embeddings._load_table.cache_clear()
    yield lambda name: f"/{repository}/{commit}/model/{name}"
    embeddings._load_table.cache_clear()
    embeddings.embeddings_digest.cache_clear()


GPT1_SETTINGS = Settings.from_flat(
    {"task.kind": "text", "model.kind": "gpt", "model.dim": 3, "model.heads": 1, "model.positions": "learned"}
    | {"model.embeddings": "gpt1"}
)


def test_gpt1s_tables_are_downloaded_once_with_a_row_for_padding(server, gpt1):
    info = DatasetInfo(vocab_size=6, context_length=2, n_train=1)
    tables = load_embeddings(GPT1_SETTINGS, info)
    assert np.array_equal(tables["tokens"], np.concatenate([np.zeros((1, 3)), TABLES["tokens"]]))
    assert np.array_equal(tables["positions"], TABLES["positions"][:2])
    assert gpt1("params_1.npy") in server.requested
    assert gpt1("params_2.npy") not in server.requested
    n_requests = len(server.requested)
    embeddings._load_table.cache_clear()
    load_embeddings(GPT1_SETTINGS, info)
    assert len(server.requested) == n_requests
    assert embeddings_digest("gpt1") == sha(tables["positions"].base.tobytes() + tables["tokens"].tobytes())


def test_a_file_without_the_commits_blob_id_is_rejected_and_leaves_nothing(server, gpt1, empty_cache):
    content = server.responses[gpt1("params_0.npy")]
    server.responses[gpt1("params_0.npy")] = content[:-1] + bytes([content[-1] ^ 1])
    with pytest.raises(MissingData, match=r"params_0\.npy has blob id .* the commit says"):
        load_embeddings(GPT1_SETTINGS, DatasetInfo(vocab_size=6, context_length=2, n_train=1))
    assert [path for path in empty_cache.rglob("*") if path.is_file()] == []


def test_without_a_network_it_is_said_where_gpt1s_tables_may_be_put(server, gpt1, monkeypatch, tmp_path):
    info = DatasetInfo(vocab_size=6, context_length=2, n_train=1)
    monkeypatch.setenv("SEEDBED_OFFLINE", "1")
    with pytest.raises(MissingData, match=r"SEEDBED_DATA/gpt1_embeddings/gpt1\.npz"):
        load_embeddings(GPT1_SETTINGS, info)
    (tmp_path / "gpt1_embeddings").mkdir()
    np.savez(tmp_path / "gpt1_embeddings" / "gpt1.npz", tokens=np.ones((6, 3)), positions=np.ones((2, 3)))
    monkeypatch.setenv("SEEDBED_DATA", str(tmp_path))
    assert load_embeddings(GPT1_SETTINGS, info)["tokens"].sum() == 18
    assert server.requested == []
