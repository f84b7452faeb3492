"""`treecast route` and `treecast eval`, as a user calls them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from treecast.middleware.cli.app import run
from treecast.middleware.wire.label_stack import decode_labels

FABRIC = ["--topology", "fabric", "--from", "host0.0.0", "--to", "host1.0.0,host1.1.1", "--to", "host3.2.1"]


def test_encode(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["route", "encode", *FABRIC, "--strategy", "relation", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["labels"], len(found["trees"]), found["hops"]) == (1, 1, [])
    labels, _ = decode_labels(bytes.fromhex(found["stack"]))
    assert len(labels) == 1
    assert run(["route", "encode", *FABRIC, "--strategy", "hops"]) == 0
    assert "10 hops, 0 trees, 0 stops on 10 links" in capsys.readouterr().out


@pytest.mark.parametrize("encoder", ["ours", "largest", "overlap", "gain"])
def test_explain(encoder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["route", "explain", *FABRIC, "--strategy", "topological", "--rules", "9", "--encoder", encoder])
        == 0
    )
    said = capsys.readouterr().out
    assert "each of 3 receivers gets one copy, nobody else any" in said
    assert run(["route", "explain", *FABRIC, "--strategy", "random", "--encoder", encoder, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["faults"] == []
    assert {link["head"] for link in found["links"]} >= {"host1.0.0", "host1.1.1", "host3.2.1"}
    assert all(label["switches"] for label in found["labels"])


def test_draw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    scene = ["--topology", "jellyfish:8:3", "--from", "s0/0", "--to", "s1/0,s5/0", "--strategy", "partitions"]
    for name in ("a.svg", "b.svg", "c.png"):
        assert run(["route", "draw", *scene, "--out", str(tmp_path / name)]) == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "c.png").read_bytes()[:4] == b"\x89PNG"
    assert run(["route", "draw", *scene, "--out", str(tmp_path / "d.pdf")]) == 1
    assert ".svg or .png" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--topology", "fat-tree:3", "--from", "0", "--to", "1"], "even number"),
        (["--topology", "jellyfish:x", "--from", "0", "--to", "1"], "jellyfish:20:3"),
        (
            ["--topology", "fat-tree:abc", "--from", "0", "--to", "1"],
            "expected fat-tree:PORTS, as in fat-tree:4",
        ),
        (["--topology", "fat-tree:4:4", "--from", "0", "--to", "1"], "fat-tree:4:4: expected fat-tree:PORTS"),
        (["--topology", "jellyfish:4", "--from", "0", "--to", "1"], "expected jellyfish:SWITCHES:DEGREE"),
        (["--topology", "fabric", "--from", "nobody", "--to", "host0.0.0"], "no node 'nobody'"),
        (["--topology", "fabric", "--from", "tor0.0", "--to", "host0.0.0"], "can publish nothing"),
        (["--topology", "fabric", "--from", "host0.0.0", "--to", "host0.0.0"], "publisher and receiver"),
        ([*FABRIC, "--strategy", "magic"], "--strategy magic: expected hops"),
        ([*FABRIC, "--encoder", "magic"], "no encoder"),
        (["--topology", "X", "--topology-dir", "/nowhere", "--from", "0", "--to", "1"], "has no X.graph"),
    ],
)
def test_refusals(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["route", "encode", *arguments]) == 1
    assert said in capsys.readouterr().err


def test_eval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval"]) == 0
    assert "thesis-fig6.9" in capsys.readouterr().out
    assert run(["eval", "--json"]) == 0
    assert "thesis-fig4.8" in {found["name"] for found in json.loads(capsys.readouterr().out)}
    arguments = ["eval", "thesis-fig4.8", "--runs", "1", "--jobs", "1", "--out", str(tmp_path / "out")]
    assert run(arguments) == 0
    assert "HEAD changes no rules" in capsys.readouterr().out
    assert (tmp_path / "out" / "thesis-fig4.8.json").exists()
    for wrong, said in (
        (["thesis-fig9.9"], "no such result"),
        (["thesis-fig6.9", "--encoder", "x"], "expected largest"),
        (["thesis-fig6.9", "--topology-dir", str(tmp_path)], "has no Litnet.graph"),
    ):
        assert run(["eval", *wrong]) == 1
        assert said in capsys.readouterr().err


def test_eval_says_what_pictures_need(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["eval", "thesis-fig4.8", "--runs", "1", "--jobs", "1", "--json", "--out", str(tmp_path)]
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "matplotlib", None)
        assert run(arguments) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["name"] == "thesis-fig4.8"
    assert "matplotlib is not installed. `pip install 'treecast[bench]'`" in printed.err
    assert not list(tmp_path.glob("*.svg"))
    assert run([*arguments, "--resume"]) == 0
    assert "matplotlib" not in capsys.readouterr().err
    assert list(tmp_path.glob("*.svg"))
