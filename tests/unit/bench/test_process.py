"""Servers as the operating system sees them, with real child processes."""

import os
import select
import subprocess
import sys

import pytest
from bench.core import process
from bench.core.process import ServerProcess

from treecast.middleware.evaluation import processes

BUSY = "import sys; sum(range(4_000_000)); print('done', flush=True); sys.stdin.readline()"


def spawn(code):
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_cpu_of_the_process_and_of_its_children_is_counted():
    parent = (
        "import subprocess, sys\n"
        "pipe = subprocess.PIPE\n"
        f"child = subprocess.Popen([sys.executable, '-c', {BUSY!r}], stdin=pipe, stdout=pipe)\n"
        "child.stdout.readline(); print('up', flush=True); sys.stdin.readline()\n"
        "child.communicate(b'\\n'); print('reaped', flush=True); sys.stdin.readline()\n"
    )
    with spawn(parent) as server:
        server.stdout.readline()
        pids = processes.descendants(server.pid)
        assert len(pids) == 2
        assert processes.cpu_seconds(pids) > processes.cpu_seconds([server.pid]) > 0
        running = processes.cpu_seconds(pids)
        server.stdin.write("\n")
        server.stdin.flush()
        server.stdout.readline()
        # The child has left the list; its CPU time has moved to its parent's account, in ticks of 10 ms.
        assert processes.descendants(server.pid) == [server.pid]
        assert processes.cpu_seconds([server.pid]) >= running - 0.02
        server.stdin.write("\n")


def test_memory_tells_heap_from_mapped_files():
    with spawn(
        "import sys; kept = b'x' * (64 << 20); print('up', flush=True); sys.stdin.readline()"
    ) as server:
        server.stdout.readline()
        found = process.memory([server.pid])
        assert found.anonymous >= 64 << 20
        assert found.resident >= found.anonymous + found.file
        assert found.file > 0
        assert process.threads([server.pid]) == 1
        server.stdin.write("\n")


def test_a_process_that_is_gone_counts_nothing():
    with spawn("pass") as server:
        server.communicate()
    assert processes.cpu_seconds([server.pid]) == 0
    assert process.memory([server.pid]) == process.Memory(0, 0, 0)


def started(code, tmp_path) -> ServerProcess:
    return ServerProcess([sys.executable, "-c", code], tmp_path / "log")


def test_stop_takes_what_the_server_spawned_with_it(tmp_path):
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    server = started(code, tmp_path)
    log = tmp_path / "log"
    assert server.wait_until(lambda: log.read_text().endswith("\n"), 30) > 0
    child = os.pidfd_open(int(log.read_text()))
    assert server.stop() == -15
    gone, _, _ = select.select([child], [], [], 30)
    os.close(child)
    assert gone == [child]


def test_a_server_that_ends_early_shows_its_log(tmp_path):
    server = started("print('port is taken'); raise SystemExit(3)", tmp_path)
    with pytest.raises(RuntimeError, match=r"ended \(3\)(.|\n)*port is taken"):
        server.wait_until(lambda: False, 30)


def test_a_server_that_never_serves_is_given_up(tmp_path):
    server = started("import time; time.sleep(600)", tmp_path)
    with pytest.raises(RuntimeError, match="does not serve after"):
        server.wait_until(lambda: False, 0.1)
    server.kill()
    assert server.pids() == [server.pid]


def test_a_harness_that_is_killed_leaves_no_server_behind(tmp_path):
    code = (
        "import pathlib, sys, time\n"
        "from bench.core.process import ServerProcess\n"
        "sleeper = [sys.executable, '-c', 'import time; print(1, flush=True); time.sleep(600)']\n"
        f"server = ServerProcess(sleeper, pathlib.Path({str(tmp_path)!r}) / 'log')\n"
        # until it runs, it has not asked the kernel to end with its parent
        "server.wait_until(server.tail, 60)\n"
        "print(server.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with spawn(code) as harness:
        server = os.pidfd_open(int(harness.stdout.readline()))
        harness.kill()
    gone, _, _ = select.select([server], [], [], 30)
    os.close(server)
    assert gone == [server]
