"""The TypeScript client: its own tests, its size, and that what is built of it is current."""

from __future__ import annotations

import filecmp
import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.node import TYPESCRIPT, node, run_tests
from threadfold.gateway.app import Gateway
from threadfold_client import AsyncClient, errors

KB = 1000


async def test_its_own_tests_pass() -> None:
    await run_tests("unit")


def test_it_is_small_and_needs_nothing_at_run_time() -> None:
    assert (TYPESCRIPT / "dist" / "index.js").stat().st_size < 16.5 * KB  # "16 kB"
    package = json.loads((TYPESCRIPT / "package.json").read_text())
    assert not package.keys() & {"dependencies", "peerDependencies", "optionalDependencies"}


def test_its_lock_names_no_registry() -> None:
    packages = json.loads((TYPESCRIPT / "package-lock.json").read_text())["packages"].values()
    assert not any("resolved" in package for package in packages)
    assert all("integrity" in package for package in packages if "name" not in package)


def test_it_has_the_version_of_the_python_client() -> None:
    package = json.loads((TYPESCRIPT / "package.json").read_text())
    project = (TYPESCRIPT.parent / "python" / "pyproject.toml").read_text()
    assert f'\nversion = "{package["version"]}"\n' in project


def test_it_has_the_methods_and_errors_of_the_python_client() -> None:
    built = TYPESCRIPT / "dist"
    methods = "".join((built / f"{name}.d.ts").read_text() for name in ("client", "memories"))
    for name in dir(AsyncClient):
        if not name.startswith("_") and name != "over":  # a transport of one's own is `fetch`
            first, *rest = name.split("_")
            assert re.search(rf"^    {first + ''.join(map(str.title, rest))}\(", methods, re.M), (
                name
            )
    classes = (built / "errors.d.ts").read_text()
    for error in vars(errors).values():
        if isinstance(error, type) and issubclass(error, errors.ClientError):
            assert f"export declare class {error.__name__} " in classes


@pytest.mark.long
def test_its_types_are_those_of_the_openapi_document() -> None:
    document = json.dumps(Gateway.openapi())
    made = run("scripts/generate.mjs", "--print", given=document)
    stored = (TYPESCRIPT / "types" / "openapi.d.ts").read_text()
    assert made == stored, "types/openapi.d.ts is not current: run make typescript"


@pytest.mark.long
def test_what_is_built_is_made_of_the_source(tmp_path: Path) -> None:
    built = tmp_path / "dist"
    run("scripts/build.mjs", str(built))
    names = sorted(path.name for path in (TYPESCRIPT / "dist").iterdir())
    assert names == sorted(path.name for path in built.iterdir())
    _, differing, missing = filecmp.cmpfiles(TYPESCRIPT / "dist", built, names, shallow=False)
    assert not differing + missing, "dist/ is not current: run make typescript"


@pytest.mark.long
def test_its_source_is_formatted() -> None:
    run("node_modules/prettier/bin/prettier.cjs", "--check", "src", "scripts", "test")


def run(script: str, *arguments: str, given: str = "") -> str:
    """The output of one of the client's scripts; without its development packages the test is
    skipped.
    """
    if not (TYPESCRIPT / "node_modules").is_dir():
        pytest.skip("the TypeScript client's packages are not installed: run make typescript")
    done = subprocess.run(
        [node(), script, *arguments], cwd=TYPESCRIPT, input=given, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
