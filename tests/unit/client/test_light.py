"""The client's distribution is light: what importing it loads, and what installing it brings."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import warnings
from importlib import import_module
from pathlib import Path

import pytest

import threadfold_client
from threadfold.client import AsyncClient as FullAsyncClient

ROOT = Path(__file__).resolve().parents[3]
CLIENT = ROOT / "clients" / "python"
HEAVY = ("projections", "streams", "threadfold", "aiokafka", "redis", "faust", "numpy", "starlette")
FORMER = "threadfold.adapters"
MAX_BYTES = 30_000_000


def modules() -> list[str]:
    """The modules that need no framework to be imported."""
    found = [
        ".".join(path.relative_to(CLIENT).with_suffix("").parts)
        for path in sorted((CLIENT / "threadfold_client").rglob("*.py"))
    ]
    names = [name.removesuffix(".__init__") for name in found]
    return [name for name in names if "lang" not in name]


def test_importing_the_client_loads_nothing_of_the_services() -> None:
    code = f"""
import sys
sys.path.insert(0, {str(CLIENT)!r})
import {", ".join(modules())}
heavy = set({HEAVY!r}) & {{name.partition(".")[0] for name in sys.modules}}
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_both_distributions_have_one_version_and_the_same_bounds() -> None:
    full = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    client = tomllib.loads((CLIENT / "pyproject.toml").read_text())["project"]
    assert client["version"] == full["version"]
    assert client["requires-python"] == full["requires-python"]
    assert set(client["dependencies"]) <= set(full["dependencies"])
    for extra, packages in client["optional-dependencies"].items():
        assert full["optional-dependencies"][extra] == packages


def test_names_of_the_former_places_work_and_warn() -> None:
    with pytest.warns(
        DeprecationWarning, match=r"threadfold\.client\.NotFound is called threadfold_c"
    ):
        assert import_module("threadfold.client").NotFound is threadfold_client.NotFound
    with pytest.warns(DeprecationWarning, match=r"threadfold\.adapters\.openai is called"):
        old = import_module(f"{FORMER}.openai")
    assert old is import_module("threadfold_client.adapters.openai")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert import_module("threadfold").AsyncClient is FullAsyncClient
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = import_module("threadfold.client").Nothing


@pytest.mark.long
def test_the_installed_client_takes_at_most_30_megabytes(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True, timeout=120)
    before = size(venv)
    pip = [venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "install", "--quiet", "--retries", "0", "--timeout", "10", CLIENT],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"no package registry was reachable: {done.stderr.strip()[-200:]}")
    code = "import threadfold_client as t; t.Client('http://127.0.0.1:9', 'k').close()"
    subprocess.run([venv / "bin" / "python", "-I", "-c", code], check=True, timeout=60)
    installed = size(venv) - before
    assert installed <= MAX_BYTES, f"the client takes {installed / 1e6:.1f} MB"


def size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_symlink())
