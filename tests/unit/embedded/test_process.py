"""Guarded processes: they run, stop, report, and go when their owner or their guard is killed.
Folders: one user at a time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from projections.errors import DataFolderInUse, EmbeddedUnavailable
from tests.support.processes import alive, until
from threadfold.embedded.folder import DataFolder
from threadfold.embedded.process import GuardedProcess

LONG = "import time; time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True);"
    " time.sleep(600)"
)

OWNER = """
import sys, time
from pathlib import Path
from threadfold.embedded.folder import DataFolder
from threadfold.embedded.process import GuardedProcess
folder = DataFolder(Path(sys.argv[1]))
folder.acquire()
child = GuardedProcess([sys.executable, "-c", sys.argv[2]], log=Path(sys.argv[1], "log"), pass_fds=(folder.descriptor,))
child.start()
print(child.pid, child.guard_pid, flush=True)
time.sleep(600)
"""


def test_output_goes_to_the_log_and_the_exit_code_is_the_commands(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = GuardedProcess([sys.executable, "-c", "print('hello'); raise SystemExit(7)"], log=log)
    process.start()
    assert process.wait(20) == 7
    assert process.poll() == 7
    assert log.read_text() == "hello\n"


def test_environment_and_working_folder_are_the_given_ones(tmp_path: Path) -> None:
    code = "import os; print(os.environ['MARK'], os.getcwd())"
    process = GuardedProcess(
        [sys.executable, "-c", code], env={"MARK": "x"}, cwd=tmp_path, log=tmp_path / "log"
    )
    process.start()
    assert process.wait(20) == 0
    assert (tmp_path / "log").read_text() == f"x {tmp_path.resolve()}\n"


def test_stop_ends_the_command_with_sigterm_and_can_be_repeated(tmp_path: Path) -> None:
    process = GuardedProcess([sys.executable, "-c", LONG], log=tmp_path / "log")
    process.start()
    assert process.poll() is None
    assert process.stop(10) == 128 + signal.SIGTERM
    assert process.stop(10) == 128 + signal.SIGTERM
    assert not alive(process.pid)


def test_command_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = GuardedProcess([sys.executable, "-c", STUBBORN], log=log)
    process.start()
    until(lambda: log.read_text() == "up\n")
    began = time.monotonic()
    assert process.stop(0.3) == 128 + signal.SIGKILL
    assert 0.25 < time.monotonic() - began < 5
    assert not alive(process.pid)


def test_what_the_command_started_itself_goes_with_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = (
        f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {LONG!r}]).pid,"
        f" flush=True); {LONG}"
    )
    process = GuardedProcess([sys.executable, "-c", code], log=log)
    process.start()
    until(lambda: log.read_text().endswith("\n"))
    process.stop(5)
    until(lambda: not alive(int(log.read_text())))


def test_command_that_cannot_run_is_one_clear_error(tmp_path: Path) -> None:
    for command in ("/nowhere/server", str(tmp_path)):
        with pytest.raises(EmbeddedUnavailable, match=f"Could not start {command}: "):
            GuardedProcess([command], log=tmp_path / "log").start()


def test_killed_guard_takes_the_command_along(tmp_path: Path) -> None:
    process = GuardedProcess([sys.executable, "-c", STUBBORN], log=tmp_path / "log")
    process.start()
    os.kill(process.guard_pid, signal.SIGKILL)
    until(lambda: process.poll() is not None and not alive(process.pid))
    assert process.poll() == 128 + signal.SIGKILL


def test_interrupt_of_the_owners_group_does_not_reach_the_command(tmp_path: Path) -> None:
    with GuardedProcess([sys.executable, "-c", LONG], log=tmp_path / "log") as process:
        assert os.getsid(process.pid) == os.getsid(process.guard_pid) != os.getsid(0)


@pytest.mark.parametrize("code", [LONG, STUBBORN], ids=["willing", "stubborn"])
def test_owner_killed_leaves_no_process_and_no_lock(tmp_path: Path, code: str) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), code], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    pids = [int(word) for word in owner.stdout.readline().split()]
    assert len(pids) == 2
    with pytest.raises(DataFolderInUse, match=f"in use by process {owner.pid};"):
        DataFolder(tmp_path).acquire()
    owner.kill()
    owner.wait()
    owner.stdout.close()
    with DataFolder(tmp_path):  # waits until the command, which holds the lock as well, is gone
        assert not any(alive(pid) for pid in pids[:1])
    until(lambda: not any(alive(pid) for pid in pids))


def test_folder_is_free_again_after_release(tmp_path: Path) -> None:
    first = DataFolder(tmp_path / "new" / "data")
    with first:
        assert (tmp_path / "new" / "data").is_dir()
    first.release()
    with DataFolder(tmp_path / "new" / "data"):
        assert (tmp_path / "new" / "data" / "threadfold.lock").read_text() == f"{os.getpid()}\n"


def test_temporary_folder_is_removed_on_release() -> None:
    with DataFolder.temporary() as folder:
        (folder.path / "sub").mkdir()
        assert folder.path.is_dir()
    assert not folder.path.exists()


def test_folder_that_is_a_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataFolderInUse, match="cannot be used"):
        DataFolder(tmp_path / "file").acquire()
