"""The tokenizer of filter text. A comment begins with `#` or `//` and ends with its line."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator

from msgspec import Struct

from .errors import FilterError

_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*|//[^\n]*)
      | (?P<address>[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,}(?:/[0-9]+)?(?![\w:]))
      | (?P<number>-?(?:0[xX][0-9a-fA-F_]+|[0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![\w.]))
      | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<word>[^\W\d][\w-]*|`[^`]+`)
      | (?P<bare>[0-9][\w./-]*(?::[0-9][\w./-]*)*)
      | (?P<sign>==|!=|<=|>=|&&|\|\||<-(?=\s*[^\W\d])|[<>=!().,:;∧\u2228¬])""",
    re.VERBOSE | re.DOTALL,
)

_SAME = {"&&": "and", "∧": "and", "||": "or", "\u2228": "or", "!": "not", "¬": "not", "=": "=="}
KEYWORDS = frozenset(("and", "or", "not", "prefix", "true", "false"))
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


class Kind(enum.Enum):
    """The kind of a token; the value is its name in messages."""

    NUMBER = "a number"
    STRING = "a string"
    WORD = "a name"
    SIGN = "a sign"
    END = "the end"


class Token(Struct, frozen=True):
    """One token. `text` is normalized: no quotes or escapes, one spelling per sign and keyword."""

    kind: Kind
    text: str
    position: int


def tokens(text: str) -> Iterator[Token]:
    """Yields the tokens of `text`, then END. Raises FilterError at the first character that starts no
    token.
    """
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise FilterError(_unreadable(text[position]), text, position)
        if found.lastgroup != "space":
            yield _token(found, position, text)
        position = found.end()
    yield Token(Kind.END, "", len(text))


def _unreadable(character: str) -> str:
    if character in "\"'`":
        return f"the {character} is not closed"
    if character == "^":
        return "'^' is no sign of this language; write 'and'"
    return f"{character!r} starts no token of this language"


def _token(found: re.Match[str], position: int, text: str) -> Token:
    raw = found[0]
    match found.lastgroup:
        case "number":
            return Token(Kind.NUMBER, raw.replace("_", ""), position)
        case "string":
            return Token(Kind.STRING, _unescaped(raw[1:-1]), position)
        case "bare" | "address":  # an address, a version, or a measure with its unit
            return Token(Kind.STRING, raw, position)
        case "sign":
            return Token(Kind.SIGN, _SAME.get(raw, raw), position)
    if raw.startswith("`"):
        return Token(Kind.WORD, raw[1:-1], position)
    lowered = raw.lower()
    if lowered in KEYWORDS:
        return Token(Kind.SIGN, lowered, position)
    return Token(Kind.WORD, raw, position)


def _unescaped(body: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), body, flags=re.DOTALL)
