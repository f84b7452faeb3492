"""The decisions of the authority of a secured cluster: one file, `ledger.json`, replaced as a whole. Pure.

Tokens are kept as digests, for as long as it takes to say what became of them. A certificate is refused by
its serial number, so a host that was expelled may join again, with another token and certificate.

Keys are numbered from 1. A planned change keeps the key before it, for segments that are under way; an
expulsion keeps none, nor does a ledger that was restored and may lack one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from treecast.middleware.api.trust_calls import Issued, Keys
from treecast.middleware.model.errors import Fault, TreecastError

KEY_BYTES: Final = 32
MAX_KEY: Final = 0xFFFF  # a segment has 16 bits for the number
MAX_LOST: Final = MAX_KEY // 2  # generations that a restored ledger may lack
MAX_OPEN_TOKENS: Final = 10_000
MAX_HELD: Final = (
    4  # certificates of one host or administrator: a renewal whose answer is lost is asked again
)
KEEP_TOKENS: Final = 7 * 86_400.0  # seconds after the end of a token


class Token(Struct, frozen=True, omit_defaults=True):
    """A token that was given out. `by`: the host that joined with it; `key`: a digest of that host's key."""

    digest: str
    expires: float
    name: str = ""
    by: str = ""
    at: float = 0.0
    key: str = ""


class Certificate(Struct, frozen=True, omit_defaults=True):
    """A certificate that was given out; `expelled`: when it was refused, seconds since 1970. `key`: a digest
    of its key; "" in a ledger that noted none.
    """

    name: str
    role: str
    until: float
    expelled: float = 0.0
    key: str = ""


class Ledger(Struct, frozen=True, omit_defaults=True):
    """`tokens` by id, `certificates` by serial number, both as hex. `keys` by number, as hex."""

    cluster_id: str
    generation: int
    current: int
    keys: dict[int, str]
    tokens: dict[str, Token] = {}
    certificates: dict[str, Certificate] = {}

    def serving(self) -> Keys:
        """Returns what hosts are told."""
        keys = {number: bytes.fromhex(key) for number, key in self.keys.items()}
        refused = [serial for serial, one in self.certificates.items() if one.expelled]
        known = [serial for serial, one in self.certificates.items() if not one.expelled]
        return Keys(self.generation, self.current, keys, refused, known)

    def knows(self, serial: str) -> bool:
        """Whether it has given out this certificate: one of a ledger that was lost is unknown."""
        return serial in self.certificates

    def is_expelled(self, serial: str) -> bool:
        """Whether a certificate is refused. One that this ledger does not know is, too: it is of a ledger
        that was lost, and nobody could expel its host.
        """
        found = self.certificates.get(serial)
        return found is None or bool(found.expelled)

    def issued(self) -> list[Issued]:
        return [
            Issued(one.name, one.role, serial, one.until, one.expelled)
            for serial, one in self.certificates.items()
        ]


def new_ledger(cluster_id: str, key: bytes) -> Ledger:
    """Returns the ledger of a new cluster with its first key."""
    return Ledger(cluster_id, 1, 1, {1: key.hex()})


def read_ledger(data: bytes) -> Ledger:
    """Raises INVALID_REQUEST."""
    try:
        found = msgspec.json.decode(data, type=Ledger)
        sound = found.current in found.keys and all(
            len(bytes.fromhex(k)) == KEY_BYTES for k in found.keys.values()
        )
    except (msgspec.MsgspecError, ValueError) as error:
        raise TreecastError(Fault.INVALID_REQUEST, f"this is no ledger: {error}") from error
    if not sound:
        raise TreecastError(Fault.INVALID_REQUEST, "the ledger has no current key")
    return found


def write_ledger(ledger: Ledger) -> bytes:
    return msgspec.json.format(msgspec.json.encode(ledger), indent=1) + b"\n"


# --- tokens


def with_token(ledger: Ledger, id: str, digest: str, expires: float, name: str, now: float) -> Ledger:
    """Returns the ledger with one more token. Raises POLICY_VIOLATION if too many are open."""
    kept = {key: one for key, one in ledger.tokens.items() if one.expires + KEEP_TOKENS > now}
    if sum(not one.by and one.expires > now for one in kept.values()) >= MAX_OPEN_TOKENS:
        raise _refused(f"there are {MAX_OPEN_TOKENS} unused tokens: wait until some have expired")
    return replace(ledger, tokens={**kept, id: Token(digest, expires, name)})


def known_token(ledger: Ledger, id: str, digest: str) -> Token:
    """Raises POLICY_VIOLATION if there is none with this secret."""
    token = ledger.tokens.get(id)
    if token is None or token.digest != digest:
        raise _refused("the join token is not of this cluster: make one with `treecast token create`")
    return token


def used(ledger: Ledger, id: str, digest: str, name: str, key: str, now: float) -> Ledger:
    """Returns the ledger in which host `name`, whose key has the digest `key`, has used a token.

    The same host with the same key may use it again: it may have lost the answer. Raises POLICY_VIOLATION.
    """
    token = known_token(ledger, id, digest)
    if token.by and (token.by, token.key) != (name, key):
        raise _refused(f"the join token was used by host {token.by}: each host takes a token of its own")
    if token.expires <= now:
        raise _refused("the join token has expired: make another with `treecast token create`")
    if token.name and token.name != name:
        raise _refused(f"the join token is for host {token.name}, and this is {name}: look at --name")
    return replace(ledger, tokens={**ledger.tokens, id: replace(token, by=name, at=now, key=key)})


# --- certificates


def with_certificate(ledger: Ledger, serial: str, made: Certificate, shown: str = "") -> Ledger:
    """Returns the ledger with one more certificate, of which all hosts are told: a new generation.

    Its holder has MAX_HELD at most: the earliest others are forgotten, and so refused, but not the one with
    the serial number `shown`, which it uses.
    """
    others = [one for one in _held(ledger, made.name, made.role) if one != shown]
    room = MAX_HELD - 1 - (shown in ledger.certificates)
    left = _without(ledger, others[: max(len(others) - room, 0)])
    return replace(left, certificates={**left.certificates, serial: made}, generation=left.generation + 1)


def without_key(ledger: Ledger, name: str, role: str, key: str) -> Ledger:
    """Returns the ledger without the certificates of a key: its holder joins again, and gets another."""
    return _without(ledger, [one for one in _held(ledger, name, role) if ledger.certificates[one].key == key])


def _held(ledger: Ledger, name: str, role: str) -> list[str]:
    """Returns the certificates of a holder that are not refused, the earliest first."""
    return [
        serial
        for serial, one in ledger.certificates.items()
        if (one.name, one.role) == (name, role) and not one.expelled
    ]


def _without(ledger: Ledger, serials: list[str]) -> Ledger:
    gone = set(serials)
    left = {serial: one for serial, one in ledger.certificates.items() if serial not in gone}
    return replace(ledger, certificates=left) if gone else ledger


def without_ended(ledger: Ledger, now: float) -> Ledger:
    """Returns the ledger without certificates whose time is over: TLS refuses them."""
    left = {serial: one for serial, one in ledger.certificates.items() if one.until + 86_400 > now}
    return ledger if len(left) == len(ledger.certificates) else replace(ledger, certificates=left)


def check_name(ledger: Ledger, name: str, key: str, role: str) -> None:
    """Raises POLICY_VIOLATION if another host of this name holds a certificate: two would be one host.

    A name is free again once its host is expelled. The host itself, which may have lost an answer, has used
    its token with the same key.
    """
    holders = [one for one in ledger.certificates.values() if (one.name, one.role) == (name, role)]
    again = any(token.by == name and token.key == key for token in ledger.tokens.values())
    if not again and any(not one.expelled for one in holders):
        raise _refused(
            f"there is a host {name} in this cluster: choose another --name, or expel that one with"
            f" `treecast hosts expel {name}` if this host takes its place"
        )


def expel(ledger: Ledger, name: str, role: str, key: bytes, now: float) -> tuple[Ledger, int]:
    """Returns the ledger that refuses all certificates of a host, with a new key, and how many they are.

    Raises INVALID_REQUEST if the host holds none.
    """
    held = _held(ledger, name, role)
    if not held:
        raise TreecastError(
            Fault.INVALID_REQUEST,
            f"no host {name} holds a certificate of this cluster; `treecast hosts list` shows all",
        )
    marked = {serial: replace(ledger.certificates[serial], expelled=now) for serial in held}
    refusing = replace(
        ledger, certificates={**ledger.certificates, **marked}, tokens=_without_tokens(ledger, name, now)
    )
    return _with_key(refusing, key, {}), len(held)


def _without_tokens(ledger: Ledger, name: str, now: float) -> dict[str, Token]:
    """Returns the tokens, of which those of a host have ended: whoever has its disk could join again by the
    one that it has used.
    """
    return {
        id: replace(one, expires=min(one.expires, now)) if name in (one.by, one.name) else one
        for id, one in ledger.tokens.items()
    }


# --- keys


def rotate(ledger: Ledger, key: bytes) -> Ledger:
    """Returns the ledger with a new current key and the one before it."""
    return _with_key(ledger, key, {ledger.current: ledger.keys[ledger.current]})


def caught_up(ledger: Ledger, heard: int, key: bytes, now: float) -> Ledger:
    """Returns a ledger that was restored to an older state, beyond generation `heard` of which hosts know.

    Its new key has a number that no lost generation has used: each of them used one at most. What is lost may
    be an expulsion, so it is as after one: no older key counts, and each token has ended, since it may have
    been used, or be the expelled host's. Raises INVALID_REQUEST if so many generations
    cannot have been lost.
    """
    lost = heard - ledger.generation
    if lost > MAX_LOST:
        raise TreecastError(
            Fault.INVALID_REQUEST, f"generation {heard} is {lost} after that of the authority's ledger"
        )
    number = (ledger.current + lost) % MAX_KEY + 1
    tokens = {id: replace(one, expires=min(one.expires, now)) for id, one in ledger.tokens.items()}
    return replace(ledger, generation=heard + 1, current=number, keys={number: key.hex()}, tokens=tokens)


def with_expelled(ledger: Ledger, serials: Iterable[str], now: float) -> Ledger:
    """Returns the ledger in which certificates are refused that it had forgotten to be."""
    marked = {
        serial: replace(one, expelled=now)
        for serial in serials
        if (one := ledger.certificates.get(serial)) is not None and not one.expelled
    }
    return replace(ledger, certificates={**ledger.certificates, **marked}) if marked else ledger


def _with_key(ledger: Ledger, key: bytes, before: dict[int, str]) -> Ledger:
    number = ledger.current % MAX_KEY + 1
    keys = {**before, number: key.hex()}
    return replace(ledger, generation=ledger.generation + 1, current=number, keys=keys)


def _refused(detail: str) -> TreecastError:
    return TreecastError(Fault.POLICY_VIOLATION, detail)
