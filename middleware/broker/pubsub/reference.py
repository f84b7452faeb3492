"""The plain statement of what `trie` and `retained` do fast; tests hold them equal."""

from __future__ import annotations


def matches(filter: bytes, topic: bytes) -> bool:
    """Whether a topic filter matches a topic name, by section 4.7 of MQTT 5.0."""
    if topic[:1] == b"$" and filter[:1] in (b"+", b"#"):
        return False
    wanted, levels = filter.split(b"/"), topic.split(b"/")
    if wanted[-1] == b"#":
        wanted.pop()
        levels = levels[: len(wanted)] if len(levels) >= len(wanted) else levels
    return len(wanted) == len(levels) and all(
        want in (b"+", level) for want, level in zip(wanted, levels, strict=True)
    )
