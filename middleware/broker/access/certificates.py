"""From a client's certificate to a user, by rules in Kafka's spelling (`ssl.principal.mapping.rules`). Pure.

| a rule | the user |
| --- | --- |
| `DEFAULT` | the whole subject, `CN=orders,O=shop` |
| `RULE:pattern/replacement/` | the replacement, if the pattern fits the subject; `$1` is its first group |
| `RULE:pattern/replacement/L` | the same in lower case; `U`: in upper case |
| `SAN:pattern/replacement/` | the same for alternative names, as `DNS:db.shop` or `URI:spiffe://shop/db` |

The first rule that fits decides; if none does, the certificate is nobody's. A `/` in a pattern is written
`\\/`. Source: Apache Kafka's SslPrincipalMapper; rules by alternative names are an addition.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from treecast.middleware.model.certificate_names import alternative_names, distinguished_name

DEFAULT: Final = "DEFAULT"
_SHAPE: Final = re.compile(r"(RULE|SAN):((?:\\.|[^\\/])+)/((?:\\.|[^\\/])*)/([LU]?)")
_GROUP: Final = re.compile(r"\$(\d)")


class MappingError(ValueError):
    """A rule is wrong. The text shows it."""


class _Rule(Struct, frozen=True):
    """One rule. `pattern` None: DEFAULT. `by_subject`: otherwise by alternative names."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str
    by_subject: bool

    def applied(self, name: str) -> str | None:
        """Returns the user, None if the rule does not fit."""
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        user = _GROUP.sub(lambda group: found[int(group[1])] or "", self.replacement)
        return {"L": user.lower(), "U": user.upper()}.get(self.case, user)


class CertificateUsers:
    """The rules of a host."""

    def __init__(self, rules: Sequence[str] = ()) -> None:
        """No rules: DEFAULT. Raises MappingError."""
        self._rules = [_read(rule) for rule in rules or (DEFAULT,)]

    def user_of(self, certificate: Mapping[str, object]) -> str:
        """Returns the user of a verified certificate, as `ssl.SSLObject.getpeercert` returns it; "" if it is
        nobody's."""
        subject = distinguished_name(certificate)
        others = alternative_names(certificate)
        for rule in self._rules:
            names: Iterable[str] = [subject] if rule.by_subject else others
            for name in names:
                user = rule.applied(name)
                if user:
                    return user
        return ""


def _read(text: str) -> _Rule:
    if text == DEFAULT:
        return _Rule(None, "", "", True)
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise MappingError(
            f"{text!r} is no rule: DEFAULT, RULE:pattern/replacement/ or SAN:pattern/replacement/"
        )
    try:
        pattern = re.compile(found[2].replace("\\/", "/"))
    except re.error as error:
        raise MappingError(f"{text!r}: the pattern is wrong: {error}") from error
    groups = [int(one) for one in _GROUP.findall(found[3])]
    if any(one > pattern.groups for one in groups):
        raise MappingError(f"{text!r}: the pattern has {pattern.groups} groups, not {max(groups)}")
    return _Rule(pattern, found[3].replace("\\/", "/"), found[4], found[1] == "RULE")
