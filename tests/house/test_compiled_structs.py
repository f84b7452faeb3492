"""mypyc loses `frozen=True` of msgspec's Structs: compiled, they can be changed and have no hash. So hot
modules have no frozen Structs, except for those listed here, which are never hashed or changed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

HARMLESS = {
    ("middleware/wire/segment.py", "After"),
    ("middleware/fabric/channel/codec.py", "Hello"),
    ("middleware/fabric/channel/greeting.py", "Identity"),
    ("middleware/fabric/channel/values.py", "PeerStatus"),
    ("middleware/fabric/channel/dispatch.py", "Nothing"),
    ("middleware/fabric/channel/dispatch.py", "Echo"),
    ("middleware/broker/queues/spool.py", "Carried"),
    ("middleware/fabric/core/reorder.py", "Filtered"),
    ("middleware/fabric/core/reorder.py", "Progress"),
    ("middleware/fabric/origin.py", "PaceView"),
    ("middleware/fabric/origin.py", "PeerView"),
    ("middleware/fabric/origin.py", "SentView"),
}


def hot_modules() -> list[str]:
    """Returns setup.py's HOT_MODULES."""
    for node in ast.parse((REPOSITORY / "setup.py").read_text()).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "HOT_MODULES":
            assert node.value is not None
            return list(ast.literal_eval(node.value))
    raise AssertionError("setup.py has no HOT_MODULES")


def frozen_structs(source: str) -> Iterator[str]:
    """Yields the names of classes that a keyword makes frozen, like Structs."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and any(
            keyword.arg == "frozen" and ast.unparse(keyword.value) == "True" for keyword in node.keywords
        ):
            yield node.name


def test_no_hot_module_has_a_frozen_struct_but_the_harmless_ones() -> None:
    found = {
        (module, name)
        for module in hot_modules()
        for name in frozen_structs((REPOSITORY / module).read_text())
    }
    assert found == HARMLESS


def test_a_frozen_struct_is_seen() -> None:
    assert list(frozen_structs("class A(Struct, frozen=True):\n    a: int\nclass B(Struct): ...")) == ["A"]


def test_the_codecs_of_mqtts_packets_stay_as_they_are() -> None:
    """Their values are compared and hashed like frozen Structs."""
    hot = hot_modules()
    for module in ("shims/mqtt/codec_packets.py", "shims/mqtt/codec_properties.py"):
        assert module not in hot
        assert list(frozen_structs((REPOSITORY / module).read_text()))
