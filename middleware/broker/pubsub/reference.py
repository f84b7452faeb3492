"""The reference definition of what `trie` and `retained` do fast, in both spellings; tests compare them."""

from __future__ import annotations

from treecast.middleware.model import wishes


def matches(filter: bytes, topic: bytes) -> bool:
    """Whether a topic filter matches a topic name (MQTT 5.0, section 4.7)."""
    return wishes.matches(_levels(filter), _levels(topic))


def _levels(text: bytes) -> wishes.Pattern:
    return tuple(text.decode(errors="surrogateescape").split("/"))


def matches_key(pattern: bytes, key: bytes) -> bool:
    """Whether a topic exchange's binding key matches a routing key (AMQP 0-9-1, section 3.1.3.3)."""
    return _words_match(pattern.split(b".") if pattern else [], key.split(b".") if key else [])


def _words_match(pattern: list[bytes], words: list[bytes]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == b"#":
        return any(_words_match(pattern[1:], words[skipped:]) for skipped in range(len(words) + 1))
    return bool(words) and pattern[0] in (b"*", words[0]) and _words_match(pattern[1:], words[1:])
