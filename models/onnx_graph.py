"""The weights as an ONNX graph: pooling and unit length inside, int8 if wanted. Runs as its own process.

`python -m models.onnx_graph --out graph.onnx [--model DIR] [--layer N] [--precision int8|fp32]`

The service never imports this file: `onnx` and the quantiser would stay in its memory.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

from models.embedder import Precision
from models.errors import GraphRefused, ModelError
from models.files import replace
from models.weights import WEIGHTS, BertConfig, Weights, verify

OPSET, IR = 17, 8  # what every onnxruntime since 1.14 reads


class Graph:
    """An ONNX graph under construction: each method adds nodes and returns the name of its output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, value: Any, dtype: type = np.float32) -> str:
        if name not in self.constants:
            array: NDArray[Any] = np.asarray(value, dtype=dtype, order="C")
            self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def shape(self, *sizes: int) -> str:
        return self.constant("shape" + "_".join(map(str, sizes)), sizes, np.int64)

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        output = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=f"n_{output}", **attributes))
        return output


class Bert:
    """BERT's arithmetic over a dictionary of tensors, for one text a call: no padding, so no attention mask."""

    def __init__(self, tensors: dict[str, NDArray[np.float32]], config: BertConfig) -> None:
        self.graph = Graph()
        # Checkpoints saved with a head carry a prefix.
        prefix = "bert." if "bert.embeddings.word_embeddings.weight" in tensors else ""
        self.tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
        self.config = config

    def encode(self, layers: int, pooling: str) -> str:
        """From `input_ids` [1, n] to a unit vector [1, dim]."""
        x = self._embeddings()
        for i in range(layers):
            x = self._layer(x, f"encoder.layer.{i}.")
        g = self.graph
        if pooling == "cls":
            pooled = g.node("Gather", x, g.constant("first", 0, np.int64), axis=1)
        else:
            pooled = g.node("ReduceMean", x, axes=[1], keepdims=0)
        length = g.node("ReduceL2", pooled, axes=[1], keepdims=1)
        return g.node("Div", pooled, g.node("Max", length, g.constant("tiny", [1e-12])))

    def _weight(self, name: str) -> NDArray[np.float32]:
        try:
            return self.tensors[name]
        except KeyError:
            raise GraphRefused(f"the weights have no tensor {name}: not a BERT encoder") from None

    def _embeddings(self) -> str:
        g, e = self.graph, "embeddings."
        words = g.constant("words", self._weight(e + "word_embeddings.weight"))
        # Texts are one segment: its row can be added to every position beforehand.
        places = self._weight(e + "position_embeddings.weight") + self._weight(e + "token_type_embeddings.weight")[0]
        length = g.node("Slice", g.node("Shape", "input_ids"), g.shape(1), g.shape(2))
        place = g.node("Slice", g.constant("places", places), g.shape(0), length, g.shape(0))
        return self._norm(g.node("Add", g.node("Gather", words, "input_ids"), place), e + "LayerNorm")

    def _layer(self, x: str, at: str) -> str:
        g, hidden, heads = self.graph, self.config.hidden_size, self.config.num_attention_heads
        width = hidden // heads

        def split(y: str, order: list[int]) -> str:
            return g.node("Transpose", g.node("Reshape", y, g.shape(0, 0, heads, width)), perm=order)

        query = split(self._linear(x, at + "attention.self.query"), [0, 2, 1, 3])
        key = split(self._linear(x, at + "attention.self.key"), [0, 2, 3, 1])
        value = split(self._linear(x, at + "attention.self.value"), [0, 2, 1, 3])
        scores = g.node("Mul", g.node("MatMul", query, key), g.constant("scale", 1 / math.sqrt(width)))
        mixed = g.node("MatMul", g.node("Softmax", scores, axis=-1), value)
        joined = g.node("Reshape", g.node("Transpose", mixed, perm=[0, 2, 1, 3]), g.shape(0, 0, hidden))
        attended = g.node("Add", self._linear(joined, at + "attention.output.dense"), x)
        x = self._norm(attended, at + "attention.output.LayerNorm")
        inner = self._gelu(self._linear(x, at + "intermediate.dense"))
        return self._norm(g.node("Add", self._linear(inner, at + "output.dense"), x), at + "output.LayerNorm")

    def _linear(self, x: str, name: str) -> str:
        g = self.graph
        product = g.node("MatMul", x, g.constant(name + ".weight", self._weight(name + ".weight").T))
        return g.node("Add", product, g.constant(name + ".bias", self._weight(name + ".bias")))

    def _norm(self, x: str, name: str) -> str:
        g, eps = self.graph, self.config.layer_norm_eps
        scale = g.constant(name + ".weight", self._weight(name + ".weight"))
        return g.node(
            "LayerNormalization",
            x,
            scale,
            g.constant(name + ".bias", self._weight(name + ".bias")),
            epsilon=eps,
        )

    def _gelu(self, x: str) -> str:
        g = self.graph
        erf = g.node("Erf", g.node("Div", x, g.constant("root2", math.sqrt(2))))
        return g.node("Mul", g.node("Mul", x, g.node("Add", erf, g.constant("one", 1))), g.constant("half", 0.5))


def build(weights: Weights, layers: int) -> onnx.ModelProto:
    """The fp32 graph. Raises GraphRefused for a model whose arithmetic is not the one written here."""
    config = weights.config
    for field, expected in (
        ("model_type", "bert"),
        ("hidden_act", "gelu"),
        ("position_embedding_type", "absolute"),
    ):
        if (value := getattr(config, field)) != expected:
            raise GraphRefused(
                f"{weights.directory}: {field} is {value!r}, the onnx backend knows {expected!r} only."
                " Set encoder.backend: sentence-transformers"
            )
    if weights.pooling not in ("mean", "cls"):
        raise GraphRefused(
            f"{weights.directory}: its pooling is neither mean nor cls. Set encoder.backend: sentence-transformers"
        )
    bert = Bert(load_file(weights.directory / WEIGHTS), config)
    bert.graph.nodes.append(
        helper.make_node("Identity", [bert.encode(layers, weights.pooling)], ["sentence_embedding"], name="out")
    )
    graph = helper.make_graph(
        bert.graph.nodes,
        "isogloss",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "tokens"])],
        [helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, [1, config.hidden_size])],
        list(bert.graph.constants.values()),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    onnx.checker.check_model(model)
    return model


def write(weights: Weights, layers: int, precision: Precision, out: Path) -> None:
    """Build the graph, quantise it if asked, and put it at *out* in one step."""
    model = build(weights, layers)
    if precision == "fp32":
        replace(out, model.SerializeToString())
        return
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415  slow to import, int8 only

    with tempfile.TemporaryDirectory() as scratch:
        exact, small = Path(scratch) / "fp32.onnx", Path(scratch) / "int8.onnx"
        onnx.save(model, str(exact))
        # One scale per output channel: with one per tensor the cosine to fp32 falls from 0.992 to 0.960. Seven bits a
        # weight: with eight, sums of two products saturate on CPUs without VNNI, and machines differ by that.
        quantize_dynamic(
            str(exact),
            str(small),
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=True,
            nodes_to_exclude=_sensitive(model),
        )
        replace(out, small.read_bytes())


def _sensitive(model: onnx.ModelProto) -> list[str]:
    """The second half of each feed-forward block, kept fp32: what GELU gives it has rare large values, which one
    scale for all of them flattens. Without this, 97 % of CLINC150 queries keep their cluster in int8; with, 98 %.
    """
    return [
        node.name
        for node in model.graph.node
        if node.op_type == "MatMul"
        and node.input[1].endswith(".output.dense.weight")
        and ".attention." not in node.input[1]
    ]


def main(arguments: list[str] | None = None) -> int:
    """Write one graph; the exit code says whether it was done."""
    parser = argparse.ArgumentParser(prog="python -m models.onnx_graph", description=__doc__)
    parser.add_argument("--model", help="model directory (default: the installed package)")
    parser.add_argument("--layer", type=int)
    parser.add_argument("--precision", choices=["int8", "fp32"], default="int8")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        weights = verify(options.model)
        write(weights, weights.layers(options.layer), options.precision, options.out)
    except ModelError as exc:
        print(exc, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
