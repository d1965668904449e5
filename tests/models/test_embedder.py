"""The default encoder: right, quick, the same for every thread; held to sentence-transformers."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer

from models import corpus
from models.backends import open_embedder
from models.embedder import Encoder
from models.errors import WeightsRefused
from models.evaluate import HELDOUT
from models.weights import locate
from tests.models.conftest import HIDDEN, tiny_model

TEXTS = [line.text for line in corpus.read(HELDOUT, labelled=True)]
NOTHING = ["", "   ", "\n\t\r", "\x00\x01\x02\x03", "😀🎉🚀", "\u200b\u200d", "\x7f" * 100_000]
ROOT = Path(__file__).parents[2]


def rss_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def cosines(one, two) -> np.ndarray:
    return np.einsum("ij,ij->i", np.array(one), np.array(two))


@pytest.mark.parametrize("text", NOTHING)
def test_where_there_is_nothing_to_read_the_vector_is_finite_and_no_intent_is_given(embedder, clusters, text):
    found = embedder.embed(text)
    assert np.isfinite(found.vector).all()
    assert (found.known, clusters.of(found)) == (0, None)


@given(text=st.text(st.characters(exclude_categories=()), max_size=400))
@settings(max_examples=60)
def test_any_text_becomes_a_finite_unit_vector(embedder, text):
    vector = embedder.embed(text).vector
    assert vector.dtype == np.float32
    assert vector.shape == (embedder.dim,)
    assert abs(np.linalg.norm(vector) - 1) < 1e-4


def test_the_question_after_5000_words_decides_the_intent(embedder, clusters):
    filler = "the river ran past the mill and the children watched the boats go by " * 360
    code = embedder.embed(filler + "\nNow write a Python function that counts the words in this string.")
    letter = embedder.embed(filler + "\nNow fix the grammar and translate these sentences to German.")
    assert code.truncated
    assert letter.truncated
    assert clusters.of(code).nearest != clusters.of(letter).nearest


@pytest.mark.parametrize(
    "text",
    ["a" * 2**20, "QmFzZTY0+/" * 2**17, "漢字仮名" * 2**18, " " * 2**20 + "hello", "\x00" * 2**20],
    ids=["one letter", "base64", "unspaced CJK", "spaces", "NUL"],
)
def test_a_megabyte_takes_less_than_50_ms_and_no_memory(embedder, text):
    embedder.embed(text)
    before, times = rss_mb(), []
    for _ in range(5):
        start = time.perf_counter()
        embedder.embed(text)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.050
    assert rss_mb() - before < 8


def test_64_threads_get_the_vectors_that_one_gets(embedder):
    texts = [" ".join(TEXTS[i : i + 1 + i % 7]) for i in range(len(TEXTS))]
    alone = [embedder.embed(text).vector for text in texts]
    with ThreadPoolExecutor(64) as pool:
        for round_ in pool.map(lambda i: (i % len(texts), embedder.embed(texts[i % len(texts)])), range(2000)):
            i, found = round_
            assert np.array_equal(found.vector, alone[i])


def test_fp32_is_sentence_transformers(whole_fp32):
    model = SentenceTransformer(str(locate()), device="cpu", local_files_only=True)
    short = [text for text in TEXTS if not whole_fp32.embed(text).truncated]
    reference = [model.encode(text, normalize_embeddings=True) for text in short]
    assert len(short) > 100
    assert cosines([whole_fp32.embed(text).vector for text in short], reference).min() >= 0.9999


@pytest.mark.parametrize("layer", [3, None])
def test_both_backends_agree_on_every_layer_and_on_long_texts(layer):
    reference = open_embedder(Encoder(backend="sentence-transformers", layer=layer))
    exact = open_embedder(Encoder(precision="fp32", layer=layer))
    texts = [*TEXTS[::8], " ".join(TEXTS), ""]
    assert cosines([exact.embed(t).vector for t in texts], [reference.embed(t).vector for t in texts]).min() >= 0.9999
    assert reference.fingerprint == exact.fingerprint


def test_int8_stays_near_fp32(whole_int8, whole_fp32):
    apart = cosines([whole_int8.embed(t).vector for t in TEXTS], [whole_fp32.embed(t).vector for t in TEXTS])
    assert apart.mean() >= 0.98
    assert whole_int8.fingerprint.same_space(whole_fp32.fingerprint)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_another_bert_with_its_own_pooling_is_read_right(tmp_path, pooling):
    path = str(tiny_model(tmp_path / "tiny", pooling))
    onnx = open_embedder(Encoder(model=path, precision="fp32", cache=str(tmp_path / "cache")))
    torch = open_embedder(Encoder(model=path, backend="sentence-transformers"))
    assert onnx.dim == torch.dim == HIDDEN
    assert (
        cosines([onnx.embed(t).vector for t in TEXTS[:20]], [torch.embed(t).vector for t in TEXTS[:20]]).min() > 0.9999
    )


def test_a_layer_the_model_has_not_is_refused():
    with pytest.raises(WeightsRefused, match=r"layer 7.*layers 1 to 6"):
        open_embedder(Encoder(layer=7))


ALONE = """
import socket, sys, time
def refuse(*a, **k): raise OSError("no network here")
socket.socket.connect = socket.getaddrinfo = refuse
start = time.monotonic()
from models import bundle
from models.clusters import Clusters
from models.backends import open_embedder
loaded = bundle.load()
embedder = open_embedder(loaded.encoder())
loaded.require(embedder.fingerprint)
found = Clusters(loaded).of(embedder.embed("Write a Python function that reverses a list. " * 50))
unwanted = [m for m in ("torch", "onnx", "sklearn", "sentence_transformers", "transformers") if m in sys.modules]
rss = int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20
print(found.intent, unwanted, f"{time.monotonic() - start:.0f} {rss:.0f}", sep=";")
"""


def test_the_service_needs_no_network_no_torch_no_sklearn_and_little_memory(embedder):
    done = subprocess.run([sys.executable, "-c", ALONE], cwd=ROOT, capture_output=True, text=True, check=True)
    intent, unwanted, figures = done.stdout.strip().split(";")
    seconds, megabytes = map(int, figures.split())
    assert (intent, unwanted) == ("coding", "[]")
    assert seconds < 30
    assert megabytes < 180  # the service adds about 70: gRPC, Envoy's schema, GeoIP
