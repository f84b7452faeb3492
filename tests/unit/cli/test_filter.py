"""`treecast filter`: how filters are read, and what is made of rule files."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from finsy.proto import p4r
from google.protobuf import text_format

from treecast.middleware.cli.app import run
from treecast.middleware.dataplane.p4 import Entities, Schema, Switch, build_p4info
from treecast.middleware.dataplane.p4files import load_file


def test_says_how_it_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["filter", "check", "stock = GOOGL && price > 50", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "filter": 'stock == "GOOGL" and price > 50',
        "fields": ["stock", "price"],
        "constraints": 2,
        "stateless": True,
    }


def test_table_names_state(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["filter", "check", "avg(price) > 50"]) == 0
    assert "last hop" in capsys.readouterr().out


def test_points_at_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["filter", "check", "price >"]) == 1
    assert capsys.readouterr().err.endswith("  price >\n         ^\n")


HEADERS = """
header itch_order {
    bit<32> shares;
    bit<64> stock;
    bit<32> price;
}
@pragma query_field(itch_order.shares)
@pragma query_field(itch_order.price)
@pragma query_field_exact(itch_order.stock)
@pragma query_counter(my_counter, 100, 1024)
"""
RULES = """shares == 2 : fwd(1)
price > 1 and shares == 2 : fwd(2)
stock == GOOGL and avg(price) > 60 : fwd(1, 2, 3)
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "h.p4").write_text(HEADERS)
    (tmp_path / "some.rules").write_text(RULES)
    return str(tmp_path / "some.rules"), str(tmp_path / "h.p4")


def test_compile_writes_a_program_whose_vectors_run(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(["filter", "compile", files[0], "--header", files[1], "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["groups"] == 2
    assert found["variables"] == 1
    packet = "00000002 474F4F474C202020 00000050"
    vectors = out / "some.stf"
    vectors.write_text(
        vectors.read_text()
        + f"packet 9 {packet}\nexpect 1 {packet}$\nexpect 2 {packet}$\nexpect 3 {packet}$\nno_packet\n"
    )
    assert run(["p4", "run", str(out / "some.p4")]) == 0
    assert "type: MODIFY" in (out / "some.p4runtime.txt").read_text()


def test_p4runtime_text_installs_the_rules(files: tuple[str, str], tmp_path: Path) -> None:
    """A switch that gets the text by its P4Runtime view forwards by the rules."""
    assert run(["filter", "compile", files[0], "--header", files[1], "--out", str(tmp_path)]) == 0
    program = load_file(tmp_path / "some.p4")
    request = text_format.Parse((tmp_path / "some.p4runtime.txt").read_text(), p4r.WriteRequest())
    switch = Switch(program, ports=range(10))
    entities = Entities(Schema(build_p4info(program)), switch.control)
    outcomes = entities.write(request.updates, p4r.WriteRequest.CONTINUE_ON_ERROR, 0.0)
    assert {outcome.message for outcome in outcomes} == {""}
    packet = bytes.fromhex("00000002474F4F474C20202000000001")
    assert [out.port for out in switch.receive(9, packet, 0.0)] == [1]


def test_explain_names_rules_and_entries(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["stock=GOOGL", "price=70", "shares=2", "--json"]
    assert run(["filter", "explain", files[0], "--header", files[1], *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [rule["line"] for rule in found["rules"]] == [1, 2, 3]
    assert found["action"] == "fwd(1, 2, 3)"
    assert [one["table"] for one in found["lookups"]] == [
        "itch_order_shares",
        "itch_order_price",
        "itch_order_stock",
        "link",
        "my_counter",
    ]
    assert run(["filter", "explain", files[0], "--header", files[1], "volume=1"]) == 1
    assert "there is no query field volume" in capsys.readouterr().err


def test_draw_and_stats(files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "x.svg"
    assert run(["filter", "draw", files[0], "--header", files[1], "--out", str(picture)]) == 0
    root = ElementTree.fromstring(picture.read_text())
    assert root.tag.endswith("svg")
    (tmp_path / "two.rules").write_text("shares == 1 and stock == FB : fwd(1)\nshares > 5 : fwd(2)\n")
    two = str(tmp_path / "two.rules")
    assert run(["filter", "draw", two, "--header", files[1], "--out", str(picture)]) == 0
    text = picture.read_text()
    assert all(part in text for part in ("shares == 1", "stock == FB", "stroke-dasharray", "fwd(1)", "drop"))
    capsys.readouterr()
    assert run(["filter", "stats", two, "--header", files[1], "--order", "stock,shares", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["order"] == ["itch_order.stock", "itch_order.shares", "itch_order.price"]
    assert found["one_big_table"] == 2
    assert found["entries"] == sum(one["entries"] for one in found["tables"] if one["table"] != "leaf")


@pytest.mark.parametrize(
    ("rules", "headers", "text"),
    [
        ("price > 5 : fwd(1)\nprice >", HEADERS, "some.rules:2:8: a number or a string is wanted"),
        ("prise > 5 : fwd(1)", HEADERS, "some.rules:1:1: there is no query field prise"),
        ("price > 5 : fwd(1)", "header x {}\n@pragma query_field(x.y)", "h.p4:2:9: x has no field y"),
        ("price > 5 : fwd(1)", "header x { bit<8> }", "h.p4:1:19: error"),
    ],
)
def test_errors_have_file_line_and_column(
    rules: str, headers: str, text: str, files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path(files[0]).write_text(rules)
    Path(files[1]).write_text(headers)
    assert run(["filter", "stats", files[0], "--header", files[1]]) == 1
    assert text in capsys.readouterr().err


def test_contradictions_are_warnings(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    Path(files[0]).write_text("price > 5 : fwd(1)\nprice > 5 and price < 3 : fwd(2)\n")
    assert run(["filter", "stats", files[0], "--header", files[1]]) == 0
    assert "some.rules:2: warning: this filter contradicts itself" in capsys.readouterr().err


def test_rules_that_do_not_fit_are_widened_or_refused(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(files[0]).write_text("\n".join(f"price > {value} : fwd({value})" for value in range(20)))
    args = [files[0], "--header", files[1], "--size", "8"]
    assert run(["filter", "stats", *args, "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["alpha"] == 4
    assert found["needed"] == {"itch_order_price_exact": 19, "leaf": 21}
    assert "leaf holds 8 entries, and the rules need 21" in err
    assert "numbers are multiples of 4" in err
    assert run(["filter", "compile", *args, "--out", str(tmp_path / "out")]) == 0
    assert "size = 8;" in (tmp_path / "out" / "some.p4").read_text()
    assert run(["filter", "stats", *args, "--refuse"]) == 1
    assert "leave out --refuse" in capsys.readouterr().err


def test_a_search_shows_its_order_and_gain(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path(files[0]).write_text(
        "\n".join(f"stock == S{one % 5} and price > {one} : fwd({one})" for one in range(1, 40))
    )
    args = ["filter", "stats", files[0], "--header", files[1], "--json"]
    assert run([*args, "--order", "price,stock"]) == 0
    worse = json.loads(capsys.readouterr().out)
    assert run([*args, "--search", "20"]) == 0
    out, err = capsys.readouterr()
    better = json.loads(out)
    assert better["order"][0] == "itch_order.stock"
    assert better["entries"] < worse["entries"]
    assert f"{better['entries']} entries instead of" in err
