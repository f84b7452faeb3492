"""Process-wide settings, each tried in its own process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_large_buffers_stay_in_the_heap() -> None:
    script = """
from treecast.middleware.daemon.tuning import tune_malloc
assert tune_malloc()
def maps(): return sum(1 for line in open("/proc/self/maps"))
before = maps()
buffers = [bytearray(4 << 20) for _ in range(20)]
print(maps() - before)
"""
    assert int(run(script)) < 20  # without the setting each would be a mapping of its own


def test_another_c_library_is_passed_over() -> None:
    script = """
import ctypes, sys
class Other:
    def __init__(self, name): pass
ctypes.CDLL = Other
from treecast.middleware.daemon.tuning import tune_malloc
print(tune_malloc())
"""
    assert run(script) == "False"


def test_open_files_go_up_to_the_hard_limit() -> None:
    script = """
import resource
from treecast.middleware.daemon.tuning import raise_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
print(raise_open_files(), resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    assert run(script) == "200 (200, 200)"


def test_without_uvloop_asyncios_own_loop_serves() -> None:
    script = """
import sys
sys.modules["uvloop"] = None
from treecast.middleware.daemon.tuning import new_event_loop
loop = new_event_loop()
print(type(loop).__module__)
loop.close()
"""
    assert run(script).startswith("asyncio.")


def test_the_heap_is_frozen_and_the_collector_on() -> None:
    script = """
import gc
from treecast.middleware.daemon.tuning import freeze_heap
gc.disable()
freeze_heap()
print(gc.get_freeze_count() > 1000, gc.isenabled())
"""
    assert run(script) == "True True"


def test_what_a_slow_collection_has_found_in_use_is_not_looked_at_again() -> None:
    script = """
import gc
from treecast.middleware.daemon.tuning import SlowCollections
times = iter([0.0, 0.04, 1.0, 1.06])
slow = SlowCollections(times.__next__, 0.05)
kept = [[] for _ in range(1000)]
frozen = []
for generation in (1, 2, 2):
    slow("start", {"generation": generation})
    slow("stop", {"generation": generation})
    frozen.append(gc.get_freeze_count() > 1000)
print(frozen)
"""
    assert run(script) == "[False, False, True]"


def test_collections_stay_short_however_much_there_is() -> None:
    """The test counts the objects that collections visit, which does not depend on the machine."""
    script = """
import gc
from treecast.middleware.daemon import tuning
looked_at = []
def look(phase, info):
    if phase == "start" and info["generation"] == 2:
        looked_at.append(len(gc.get_objects()))
gc.callbacks.append(look)
times = iter(range(1 << 30))
tuning.time.thread_time = lambda: next(times)  # each collection is slow
tuning.freeze_heap()
kept = [[number] for number in range(600_000)]
print(len(looked_at) > 3, max(looked_at) < 100_000)
"""
    assert run(script) == "True True"
