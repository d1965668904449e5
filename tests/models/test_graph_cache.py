"""The graph on disk is built once, proved every time, and rebuilt when it is not what its manifest says."""

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from models import graph_cache
from models.errors import GraphRefused
from models.weights import verify
from tests.models.conftest import tiny_model


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def graph(model, cache, layer=2):
    return graph_cache.graph(verify(model), layer, "fp32", cache)


def only(cache, suffix):
    (path,) = cache.glob(f"*{suffix}")
    return path


def test_a_graph_is_built_once(tiny, cache):
    first = graph(tiny, cache)
    made = only(cache, ".onnx").stat().st_mtime_ns
    assert graph(tiny, cache) == first
    assert only(cache, ".onnx").stat().st_mtime_ns == made


def test_each_layer_has_its_own_graph(tiny, cache):
    assert graph(tiny, cache, layer=1) != graph(tiny, cache, layer=2)


@pytest.mark.parametrize("suffix", [".onnx", ".json"])
def test_a_damaged_file_is_named_and_rebuilt(tiny, cache, caplog, suffix):
    whole = graph(tiny, cache)
    path = only(cache, suffix)
    path.write_bytes(path.read_bytes()[:-20] + b"x" * 20)
    with caplog.at_level(logging.WARNING, "models"):
        assert graph(tiny, cache) == whole
    assert str(only(cache, ".onnx")) in caplog.text


def test_many_at_once_get_one_and_the_same(tiny, cache):
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(lambda _: graph(tiny, cache), range(4)))) == 1
    assert not [path for path in cache.iterdir() if path.suffix not in (".onnx", ".json", ".lock")]


def test_a_cache_that_cannot_be_written_is_named(tiny, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(GraphRefused, match=r"encoder\.cache_dir"):
        graph(tiny, tmp_path / "file" / "cache")


@pytest.mark.parametrize(
    ("field", "value"), [("model_type", "mpnet"), ("hidden_act", "relu"), ("position_embedding_type", "relative_key")]
)
def test_other_arithmetic_is_sent_to_the_other_backend(tmp_path, cache, field, value):
    model = tiny_model(tmp_path / "other", change=lambda config: config.update({field: value}))
    with pytest.raises(GraphRefused, match=rf"{field} is '{value}'.*sentence-transformers"):
        graph(model, cache)


def test_so_is_other_pooling(tmp_path, cache):
    with pytest.raises(GraphRefused, match="neither mean nor cls"):
        graph(tiny_model(tmp_path / "other", "max"), cache)
