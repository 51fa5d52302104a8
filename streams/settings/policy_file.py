"""Policy files: the deployment's, a tenant's, a rebuild's."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from projections.errors import InvalidPolicy, MalformedInput
from projections.events.json_text import decode
from projections.policy.policy import check_deployment


def read_policy(path: Path) -> dict[str, Any]:
    """Read and check a deployment's policy file; raises :class:`InvalidPolicy` when it cannot be
    read or does not hold.
    """
    values = read_layer(path)
    with of_policy_file(path):
        check_deployment(values)
    return values


@contextmanager
def of_policy_file(path: Path | None) -> Iterator[None]:
    """An :class:`InvalidPolicy` of the block names the file that the policy came from, if any."""
    try:
        yield
    except InvalidPolicy as error:
        if path is None:
            raise
        raise InvalidPolicy(f"policy file {path}: {error}") from None


def read_layer(path: Path) -> dict[str, Any]:
    """Read a policy file (``.json``, else TOML), which may only hold over a wider layer; raises
    :class:`InvalidPolicy` if it cannot be.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InvalidPolicy(f"policy file {path} cannot be read: {error.strerror}") from None
    try:
        if path.suffix == ".json":
            values = decode(raw, f"policy file {path}", most=len(raw) + 1)  # its owner may wait
        else:
            values = tomllib.loads(raw.decode())
    except RecursionError:
        raise InvalidPolicy(f"policy file {path} is nested too deeply") from None
    except MalformedInput as error:
        raise InvalidPolicy(str(error)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidPolicy(f"policy file {path} is not TOML: {error}") from None
    if not isinstance(values, dict):
        raise InvalidPolicy(f"policy file {path}: expected an object of keys")
    return values
