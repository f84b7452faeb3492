"""Nothing is left behind by a lab: not after its end, an exception while it is built or used, or a kill
-9."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from treecast.middleware.dataplane.lab import execute, namespaces, state
from treecast.middleware.dataplane.lab.description import parse
from treecast.middleware.dataplane.lab.lab import Lab, LabError

TEXT = """
[hosts.alpha]
run = ["sleep 1000"]
[hosts.beta]
[bridges.lan]
[[links]]
between = ["alpha", "lan"]
loss = 0.1
[[links]]
between = ["beta", "lan"]
"""
# Builds a lab, prints its id, and waits until it is killed.
OWNER = """
import sys, time
from treecast.middleware.dataplane.lab.description import parse
from treecast.middleware.dataplane.lab.lab import Lab
lab = Lab.up(parse(sys.argv[1], "owner"))
child = lab.start("beta", "sleep", "1000")
print(lab.id, child.pid, flush=True)
time.sleep(1000)
"""


@pytest.fixture(autouse=True)
def _own_runtime_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Keeps other labs' files out of these tests; leftovers of the tests are removed all the same."""
    monkeypatch.setenv("TREECAST_RUNTIME_DIR", str(tmp_path / "r"))
    yield
    state.sweep()


def left(lab_id: str) -> tuple[list[str], bool]:
    return namespaces.listed(state.namespace(lab_id, "")), state.folder(lab_id).exists()


NOTHING: tuple[list[str], bool] = ([], False)


def interfaces_here() -> list[str]:
    return sorted(path.name for path in Path("/sys/class/net").iterdir())


def await_running(lab: Lab, count: int) -> list[int]:
    """Waits for this many processes in the lab: a command starts before it has entered its host."""
    while True:
        paths = [namespaces.path_of(lab.namespace(node)) for node in lab.plan.nodes]
        found = [pid for path in paths for pid in namespaces.processes(path)]
        if len(found) >= count:
            return found
        time.sleep(0.01)


def await_end(pid: int) -> None:
    """A command that has not entered its host yet ends by itself when its owner has ended."""
    for _ in range(1000):
        if not state.is_running(pid):
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} still runs")


def mounts_of(lab: str) -> list[str]:
    """Returns mounts of that lab: other labs may be up."""
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if lab in line]


def test_up_and_down_leaves_nothing() -> None:
    before = interfaces_here()
    with Lab.up(parse(TEXT, "x")) as lab:
        assert len(left(lab.id)[0]) == 4  # two hosts, a bridge, a relay
        assert interfaces_here() == before
        assert mounts_of(lab.id)
        pids = await_running(lab, 2)  # the relay and `sleep`
    assert left(lab.id) == NOTHING
    assert interfaces_here() == before
    assert not mounts_of(lab.id)
    assert not [pid for pid in pids if state.is_running(pid)]
    lab.down()


def test_an_exception_in_the_middle_leaves_nothing() -> None:
    with contextlib.suppress(RuntimeError), Lab.up(parse(TEXT, "x")) as lab:
        sleeping = lab.start("beta", "sleep", "1000")
        raise RuntimeError("in the middle")
    assert left(lab.id) == NOTHING
    assert sleeping.returncode == -signal.SIGKILL


@pytest.mark.parametrize("broken", ["_visit", "interface"])
def test_a_lab_that_cannot_be_built_leaves_nothing(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    ids: list[str] = []
    write = state.write
    monkeypatch.setattr(state, "write", lambda known: (ids.append(known.id), write(known)))
    if broken == "_visit":
        visits = iter(range(5))
        visit = execute._visit

        def fail(*arguments: object) -> None:
            if next(visits) == 4:
                raise OSError(28, "no room")
            visit(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(execute, "_visit", fail)
    else:
        monkeypatch.setattr(Lab, "_start_relays", lambda self: (_ for _ in ()).throw(OSError(28, "no room")))
    with pytest.raises(LabError, match="no room"):
        Lab.up(parse(TEXT, "x"))
    assert ids
    assert left(ids[0]) == NOTHING


def test_a_killed_owner_is_cleaned_up_after_by_the_next() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, TEXT], stdout=subprocess.PIPE)
    with owner:
        assert owner.stdout is not None
        lab_id, child = owner.stdout.readline().decode().split()
        assert left(lab_id) != NOTHING
        assert lab_id not in state.sweep()  # the owner is alive
        owner.kill()
    with Lab.up(parse("[hosts.alpha]", "x")):
        assert left(lab_id) == NOTHING
    await_end(int(child))


def test_leftovers_are_found_without_their_files(
    treecast: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, TEXT], stdout=subprocess.PIPE)
    with owner:
        assert owner.stdout is not None
        lab_id = owner.stdout.readline().decode().split()[0]
        owner.kill()
    for path in sorted(state.folder(lab_id).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    state.folder(lab_id).rmdir()
    json.loads(treecast("lab", "down", "--json").stdout)  # unless another test run was faster
    assert left(lab_id) == NOTHING


@pytest.fixture
def treecast() -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        module = [sys.executable, "-m", "treecast.middleware.cli"]
        return subprocess.run([*module, *arguments], capture_output=True, text=True, timeout=60, check=False)

    return run


def test_the_command_keeps_a_lab_until_it_is_told(
    treecast: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(TEXT)
    lab_id = state.kept_id(file)
    try:
        up = json.loads(treecast("lab", "up", str(file), "--json").stdout)
        assert up["id"] == lab_id
        assert [(row["node"], row["kind"], row["ipv4"]) for row in up["nodes"]] == [
            ("alpha", "host", "10.64.0.1/24"),
            ("beta", "host", "10.64.0.2/24"),
            ("lan", "bridge", "-"),
        ]
        assert [row["mac"] for row in up["nodes"]] == ["02:54:00:00:00:01", "02:54:00:00:00:02", "-"]
        assert up["links"] == [["alpha", "lan"], ["beta", "lan"]]
        assert lab_id not in state.sweep()  # the command has ended, but the lab stays
        again = treecast("lab", "up", str(file))
        assert (again.returncode, "is up already; take it down with" in again.stderr) == (1, True)
        ran = treecast("lab", "run", str(file), "beta", "--", "sh", "-c", "hostname; exit 3")
        assert (ran.stdout, ran.returncode) == ("beta\n", 3)
        cut = treecast("lab", "link", str(file), "alpha", "lan", "--cut", "--loss", "5%", "--json")
        assert [row["direction"] for row in json.loads(cut.stdout)["directions"]] == ["forward", "backward"]
        refused = treecast("lab", "link", str(file), "beta", "lan", "--cut")
        assert "no relayed link beta lan in the lab of" in refused.stderr
        assert (
            "is not from 0 to 1" in treecast("lab", "link", str(file), "alpha", "lan", "--loss", "2").stderr
        )
        wrong = treecast("lab", "run", str(file), "bet", "--", "true")
        assert "there is no 'bet'" in wrong.stderr
    finally:
        down = json.loads(treecast("lab", "down", str(file), "--json").stdout)
    assert lab_id in down["removed"]
    assert left(lab_id) == NOTHING
    assert "is not up" in treecast("lab", "down", str(file)).stderr
    assert "is not up; build it with" in treecast("lab", "run", str(file), "beta", "--", "true").stderr


def test_an_interrupted_up_is_a_leftover(tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(TEXT)
    script = OWNER.replace(
        'Lab.up(parse(sys.argv[1], "owner"))', "Lab.up(parse(sys.argv[1], 'f'), file=Path(sys.argv[2]))"
    )
    stuck = script.replace("import sys, time", "import sys, time\nfrom pathlib import Path").replace(
        "lab = ", "Lab._start_relays = lambda self: (print('stuck', flush=True), time.sleep(1000))\nlab = "
    )
    owner = subprocess.Popen([sys.executable, "-c", stuck, TEXT, str(file)], stdout=subprocess.PIPE)
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"stuck\n"
        owner.kill()
    lab_id = state.kept_id(file)
    assert left(lab_id) != NOTHING
    assert lab_id in state.sweep()
    assert left(lab_id) == NOTHING
