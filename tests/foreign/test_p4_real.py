"""Our programs under p4lang's tools if these are installed; otherwise the commands for simple_switch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.foreign.bmv2 import add_command
from tests.foreign.p4_real import PROGRAMS, compile_program, warnings_of

from treecast.middleware.dataplane.p4.frontend import load_program
from treecast.middleware.dataplane.p4.runtime import (
    ActionCall,
    Entry,
    ExactMatch,
    LpmMatch,
    OptionalMatch,
    RangeMatch,
    TernaryMatch,
)

TABLE = """
#include <core.p4>
#include <v1model.p4>
header h_t { bit<8> a; bit<32> b; bit<12> c; bit<4> d; bit<16> e; }
struct headers { h_t h; }
struct meta {}
parser P(packet_in p, out headers hdr, inout meta m, inout standard_metadata_t s) {
    state start { p.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout meta m) { apply { } }
control I(inout headers hdr, inout meta m, inout standard_metadata_t s) {
    action go(bit<9> port, bit<16> e) { s.egress_spec = port; hdr.h.e = e; }
    table t {
        key = { hdr.h.a: exact; hdr.h.b: lpm; }
        actions = { go; }
    }
    table u {
        key = { hdr.h.a: ternary; hdr.h.c: range; hdr.h.d: optional; }
        actions = { go; }
    }
    apply { t.apply(); u.apply(); }
}
control E(inout headers hdr, inout meta m, inout standard_metadata_t s) { apply { } }
control D(packet_out p, in headers hdr) { apply { p.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
"""


def test_an_entry_as_the_command_line_takes_it() -> None:
    program = load_program(TABLE, "t.p4")
    t, u = program.tables
    call = ActionCall("I.go", {"e": 7, "port": 3})  # the order of parameters is the program's
    one = Entry({"hdr.h.a": ExactMatch(1), "hdr.h.b": LpmMatch(0x0A000000, 8)}, call)
    assert add_command(program, t, one) == "table_add I.t I.go 0x1 0xa000000/8 => 0x3 0x7"
    assert add_command(program, t, Entry({"hdr.h.a": ExactMatch(1)}, call)).split()[4] == "0x0/0"
    matches = {"hdr.h.a": TernaryMatch(1, 15), "hdr.h.c": RangeMatch(2, 3), "hdr.h.d": OptionalMatch(4)}
    low = add_command(program, u, Entry(matches, call, 1)).split()
    assert low[3:8] == ["0x1&&&0xf", "0x2->0x3", "0x4&&&0xf", "=>", "0x3"]
    empty = add_command(program, u, Entry({}, call, 2)).split()
    assert empty[3:6] == ["0x0&&&0x0", "0x0->0xfff", "0x0&&&0x0"]
    assert int(empty[-1]) < int(low[-1])  # in bmv2 the lowest number wins


def test_what_the_compiler_refuses_is_told(tmp_path: Path) -> None:
    fake = tmp_path / "p4c-bm2-ss"
    fake.write_text("#!/bin/sh\necho 'x.p4(3): [--Wwarn=unused] warning: a' >&2\necho no >&2\nexit 3\n")
    fake.chmod(0o755)
    *_, said, failed = compile_program(str(fake), PROGRAMS / "stare_register.p4", tmp_path)
    assert "exit code 3" in failed
    assert warnings_of(said) == ["x.p4(3): [--Wwarn=unused] warning: a"]


def test_our_programs_under_the_real_tools() -> None:
    tools = [os.environ.get(f"TREECAST_{name}") for name in ("P4C", "SIMPLE_SWITCH", "SIMPLE_SWITCH_CLI")]
    if not all(tools):
        pytest.skip("TREECAST_P4C, TREECAST_SIMPLE_SWITCH, TREECAST_SIMPLE_SWITCH_CLI name p4lang's tools")
    options = [f"{o}={t}" for o, t in zip(("--p4c", "--simple-switch", "--cli"), tools, strict=True)]
    command = [sys.executable, "-m", "tests.foreign.p4_real", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
