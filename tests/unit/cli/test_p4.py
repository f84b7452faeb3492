"""`treecast p4`: output, written files and exit codes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.p4.p4runtime.programs import KITCHEN

from treecast.middleware.cli.app import run
from treecast.middleware.control.switches import SwitchSession, SwitchState
from treecast.middleware.daemon.process import parse_ready
from treecast.middleware.dataplane.p4 import (
    ActionCall,
    Entry,
    ExactMatch,
    build_p4info,
    load_device_config,
    parse_text,
)

VECTORS = """
add prefix_table hdr.ethernet.dst:0x020000000002/48 forward(port:3)
packet 1 020000000002 020000000001 0800 00
expect 3 020000000002 020000000001 0800 00 $
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "kitchen.p4"
    path.write_text(KITCHEN)
    return path


def test_check_lists_what_control_planes_see(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["p4", "check", str(program)]) == 0
    printed = capsys.readouterr().out
    assert "MyIngress.exact_table" in printed
    assert "[hdr.ethernet.dst exact/48] counted, drop, NoAction; size 4; idle timeout" in printed
    assert run(["p4", "check", str(program), "--json"]) == 0
    objects = json.loads(capsys.readouterr().out)["objects"]
    assert {one["kind"] for one in objects} == {
        "table",
        "action",
        "action profile",
        "action selector",
        "counter",
        "direct counter",
        "meter",
        "direct meter",
        "register",
        "value set",
        "digest",
        "packet header",
    }


def test_check_writes_p4info_and_the_device_config(program: Path, tmp_path: Path) -> None:
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "more.p4").write_text("const bit<8> FROM_THE_COMMAND_LINE = NUMBER;\n")
    program.write_text(KITCHEN.replace("#include <v1model.p4>", '#include <v1model.p4>\n#include "more.p4"'))
    info, config = tmp_path / "out.txtpb", tmp_path / "out.json"
    flags = [
        "-I",
        str(tmp_path / "inc"),
        "-D",
        "NUMBER=5",
        "--p4info",
        str(info),
        "--device-config",
        str(config),
    ]
    assert run(["p4", "check", str(program), *flags]) == 0
    loaded = load_device_config(config.read_bytes())
    assert build_p4info(loaded) == parse_text(info.read_text())


def test_a_wrong_program_is_shown_with_carets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.p4"
    path.write_text("const bit<8> x = y;\n")
    assert run(["p4", "check", str(path)]) == 1
    printed = capsys.readouterr().err
    assert f"{path}:1:18: error:" in printed
    assert "\nconst bit<8> x = y;\n                 ^\n" in printed
    assert run(["p4", "check", str(tmp_path / "none.p4")]) == 1
    assert "none.p4 cannot be read" in capsys.readouterr().err


def test_run_says_what_passed(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program.with_suffix(".stf").write_text(VECTORS)
    assert run(["p4", "run", str(program)]) == 0
    printed = capsys.readouterr().out
    assert "kitchen.stf: passed" in printed
    assert "MyIngress.prefix_table" in printed
    assert run(["p4", "run", str(program), "--json", "--interpret"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["passed"], report["met"], report["statistics"]["ingress_passes"]) == (True, 1, 1)


def test_run_shows_the_difference(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vectors = tmp_path / "other.stf"
    vectors.write_text(VECTORS.replace("0800 00 $", "0801 00 $"))
    assert run(["p4", "run", str(program), "--vectors", str(vectors)]) == 1
    printed = capsys.readouterr()
    assert f"{vectors}:4:1: the packet at port 3 differs" in printed.err
    assert "expected  02 00 00 00 00 02 02 00 00 00 00 01 08 01 00" in printed.err
    assert "1 problem" in printed.out
    vectors.write_text("add prefix_table zzz:1 forward(port:3)\n")
    assert run(["p4", "run", str(program), "--vectors", str(vectors)]) == 1
    assert "  add prefix_table zzz:1 forward(port:3)\n                   ^^^" in capsys.readouterr().err
    vectors.write_text("ad prefix_table\n")
    assert run(["p4", "run", str(program), "--vectors", str(vectors)]) == 1
    assert "there is no command 'ad'" in capsys.readouterr().err
    assert run(["p4", "run", str(program), "--vectors", str(tmp_path / "none.stf")]) == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--port", "1"], "write N=INTERFACE"),
        (["--port", "x=eth0"], "'x' is not a port number"),
        (["--port", "1=a", "--port", "1=b"], "port 1 is a already"),
        (["--port", "1=there-is-none-such", "--p4runtime", "off"], "the switch cannot run"),
        (["--cpu-port", "much"], "'much' is not a port number"),
    ],
)
def test_switches_that_cannot_be(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["p4", "switch", *flags]) == 1
    assert message in capsys.readouterr().err


def test_a_switch_serves_until_it_is_ended(program: Path, tmp_path: Path) -> None:
    stats, socket = tmp_path / "stats.json", tmp_path / "s"
    command = [sys.executable, "-m", "treecast.middleware.cli", "p4", "switch", str(program), "--name", "s1"]
    command += ["--p4runtime", f"unix:{socket}", "--stats", str(stats)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert parse_ready(line.strip()) == {
            "name": "s1",
            "p4runtime": f"unix:{socket}",
            "ports": "none",
            "program": "kitchen.p4",
        }
        asyncio.run(_add_an_entry(f"unix:{socket}"))
        process.terminate()
        assert process.wait(60) == 0
    counts = json.loads(stats.read_text())
    assert (counts["name"], counts["pipeline"]["ingress_passes"]) == ("s1", 0)


async def _add_an_entry(address: str) -> None:
    entry = Entry({"hdr.ethernet.dst": ExactMatch(1)}, ActionCall("MyIngress.drop"))
    async with SwitchSession(address) as session:
        await session.learn_program()
        assert await session.bring_to(SwitchState.of(entries=[("MyIngress.exact_table", entry)])) == 1
