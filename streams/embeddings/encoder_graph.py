"""Makes an ONNX file of a BERT sentence encoder's weights: text in, one unit vector out.

The graph is that of sentence-transformers/all-MiniLM-L6-v2: BERT, the mean over the tokens, length
1. It is built here from the weights alone, so neither torch nor transformers is needed. Weights are
held as 8-bit integers with a scale for every few of them. What they are multiplied with is rounded
to 8 bits for each token apart: onnxruntime's quantiser takes one scale for a whole batch, so that a
vector depends on the texts beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

Weights = Mapping[str, np.ndarray]
OPSET = 20
"""The first with Gelu as one operator."""
OWN = "com.microsoft"
"""Where onnxruntime has the product with weights of few bits."""
BLOCK = 64
"""Neighbouring weights that share a scale."""
_FLOATS = {"F32": np.float32, "F16": np.float16}


class Shape(NamedTuple):
    """What of an encoder its weights alone do not say."""

    layers: int
    heads: int
    epsilon: float = 1e-12


def read_weights(raw: bytes | memoryview) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file, as 32-bit floats.

    Integers, such as the list of positions, are left out. Raises ``ValueError`` where it is no such
    file.
    """
    size = int.from_bytes(raw[:8], "little")
    header: dict[str, dict[str, Any]] = msgspec.json.decode(raw[8 : 8 + size])
    body, found = raw[8 + size :], {}
    for name, tensor in header.items():
        if name == "__metadata__" or tensor["dtype"] not in _FLOATS:
            continue
        begin, end = tensor["data_offsets"]
        values = np.frombuffer(body[begin:end], _FLOATS[tensor["dtype"]])
        found[name] = values.reshape(tensor["shape"]).astype(np.float32)
    return found


def write_model(weights: Weights, shape: Shape, target: Path, *, whole: bool = False) -> None:
    """Write the encoder to ``target``. ``whole`` keeps its floats: to compare with.

    Its inputs are ``ids`` and ``mask`` (int64, texts x tokens), its output ``vectors`` (float32,
    texts x dimension). A text's vector does not depend on the texts beside it.
    """
    import onnx

    onnx.save(_Graph(weights, shape, whole).model(), target)


class _Graph:
    """One encoder's operators, in their order."""

    def __init__(self, weights: Weights, shape: Shape, whole: bool) -> None:
        self._weights = weights
        self._shape = shape
        self._whole = whole
        self._nodes: list[Any] = []
        self._constants: dict[str, np.ndarray] = {}

    def model(self) -> Any:
        from onnx import TensorProto, helper, numpy_helper

        state = self._embedded()
        mask = self._op("Cast", "mask", to=TensorProto.FLOAT)
        missing = self._op("Sub", self._const("one", np.float32(1)), mask)
        bias = self._op("Mul", missing, self._const("never", np.float32(-1e9)))
        bias = self._op("Unsqueeze", bias, self._const("over_heads", np.array([1, 2])))
        for layer in range(self._shape.layers):
            state = self._layer(f"encoder.layer.{layer}", state, bias)
        self._pooled(state, mask)
        dimension = self._weights["embeddings.word_embeddings.weight"].shape[1]
        texts = [("ids", TensorProto.INT64), ("mask", TensorProto.INT64)]
        graph = helper.make_graph(
            self._nodes,
            "encoder",
            [helper.make_tensor_value_info(name, kind, ["n", "tokens"]) for name, kind in texts],
            [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["n", dimension])],
            [numpy_helper.from_array(value, name) for name, value in self._constants.items()],
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(OWN, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)

    def _embedded(self) -> str:
        words = self._words("embeddings.word_embeddings.weight")
        # All tokens are of the first sentence: its vector is part of every place's.
        places = (
            self._weights["embeddings.position_embeddings.weight"]
            + self._weights["embeddings.token_type_embeddings.weight"][0]
        )
        length = self._op("Shape", "ids", start=1, end=2)
        first = self._op(
            "Slice", self._const("places", places), self._const("begin", np.array([0])), length
        )
        return self._normal("embeddings.LayerNorm", self._op("Add", words, first))

    def _layer(self, name: str, state: str, bias: str) -> str:
        size = self._weights[f"{name}.attention.self.query.weight"].shape[0] // self._shape.heads
        apart = self._const("apart", np.array([0, 0, self._shape.heads, size]))
        together = self._const("together", np.array([0, 0, self._shape.heads * size]))

        def heads(part: str, order: list[int]) -> str:
            flat = self._linear(f"{name}.attention.self.{part}", state)
            return self._op("Transpose", self._op("Reshape", flat, apart), perm=order)

        scores = self._op("MatMul", heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1]))
        scaled = self._op("Mul", scores, self._const("scale", np.float32(size**-0.5)))
        shares = self._op("Softmax", self._op("Add", scaled, bias), axis=-1)
        mixed = self._op("MatMul", shares, heads("value", [0, 2, 1, 3]))
        flat = self._op("Reshape", self._op("Transpose", mixed, perm=[0, 2, 1, 3]), together)
        seen = self._op("Add", self._linear(f"{name}.attention.output.dense", flat), state)
        state = self._normal(f"{name}.attention.output.LayerNorm", seen)
        wide = self._op("Gelu", self._linear(f"{name}.intermediate.dense", state))
        out = self._op("Add", self._linear(f"{name}.output.dense", wide), state)
        return self._normal(f"{name}.output.LayerNorm", out)

    def _pooled(self, state: str, mask: str) -> None:
        """The mean over a text's own tokens, of length 1. Its length follows from the sum alone."""
        column = self._op("Unsqueeze", mask, self._const("last", np.array([2])))
        total = self._op(
            "ReduceSum",
            self._op("Mul", state, column),
            self._const("tokens_axis", np.array([1])),
            keepdims=0,
        )
        self._op("LpNormalization", total, axis=-1, p=2, to_name="vectors")

    def _words(self, name: str) -> str:
        if self._whole:
            return self._op("Gather", self._weight(name), "ids")
        from onnx import TensorProto

        bytes_, scales = _as_bytes(self._weights[name])
        rows = self._op("Gather", self._const(name, bytes_), "ids")
        scale = self._op("Gather", self._const(f"{name}.scale", scales), "ids")
        return self._op("Mul", self._op("Cast", rows, to=TensorProto.FLOAT), scale)

    def _linear(self, name: str, state: str) -> str:
        weight = self._weights[f"{name}.weight"]
        if self._whole:
            out = self._op("MatMul", state, self._const(f"{name}.weight", weight.T))
        else:
            out = self._product(f"{name}.weight", weight, state)
        return self._op("Add", out, self._weight(f"{name}.bias"))

    def _product(self, name: str, weight: np.ndarray, state: str) -> str:
        rows, columns = weight.shape
        bytes_, scales = _as_bytes(weight.reshape(-1, BLOCK))
        blocks = (bytes_.astype(np.int16) + 128).astype(np.uint8)
        return self._op(
            "MatMulNBits",
            state,
            self._const(name, blocks.reshape(rows, columns // BLOCK, BLOCK)),
            self._const(f"{name}.scale", scales.ravel()),
            domain=OWN,
            K=columns,
            N=rows,
            bits=8,
            block_size=BLOCK,
            accuracy_level=4,
        )

    def _normal(self, name: str, state: str) -> str:
        scale, offset = self._weight(f"{name}.weight"), self._weight(f"{name}.bias")
        return self._op(
            "LayerNormalization", state, scale, offset, axis=-1, epsilon=self._shape.epsilon
        )

    def _weight(self, name: str) -> str:
        return self._const(name, self._weights[name])

    def _const(self, name: str, value: Any) -> str:
        self._constants[name] = np.ascontiguousarray(value)
        return name

    def _op(self, kind: str, *inputs: str, to_name: str = "", **attributes: Any) -> str:
        from onnx import helper

        name = to_name or f"{kind}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name


def _as_bytes(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows as 8-bit integers, and what each row's are to be multiplied with."""
    scales = np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-12) / 127
    return np.round(rows / scales).astype(np.int8), scales.astype(np.float32)
