"""The one store of identities: users, with what is stored of their passwords, and rules.

While there is no user, nobody is asked who it is, and everything is allowed. As soon as there is one, a
client has to log in, and what no rule allows is refused. Users with `admin` may do everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.principal import ANYWHERE, HERE, Principal, PrincipalKind, Proof
from treecast.middleware.model.scram import ITERATIONS, Verifier, made_up

from .audit import Trail
from .authorizer import Decision, Operation, Resource, ResourceKind
from .bearer import OAuth, Tokens
from .certificates import CertificateUsers
from .quotas import Quota, Quotas
from .rules import Rule, Rules

_OPEN: Final = Decision(True, "there are no users")
_ADMIN: Final = Decision(True, "an administrator")
_NO_USER: Final = Decision(False, "no user has the name of the certificate")
_LOCAL: Final = Decision(False, "the user may come from this machine only")
_HERE: Final = frozenset({"", HERE, ANYWHERE})  # addresses of clients of this machine, and of none


class User(Struct, frozen=True):
    """A user. `verifiers`: by the name of the mechanism; without any it cannot log in with a password.
    `local`: it may log in from this machine only.
    """

    name: str
    verifiers: Mapping[str, Verifier] = {}
    admin: bool = False
    local: bool = False


class Content(Struct, frozen=True):
    """The content of the store. `users`: by name. `certificates`: rules that say whose a certificate is.
    `oauth`: which bearer tokens are a log-in; None: none.
    """

    users: Mapping[str, User] = {}
    rules: tuple[Rule, ...] = ()
    certificates: tuple[str, ...] = ()
    quotas: tuple[Quota, ...] = ()
    oauth: OAuth | None = None


Change = Callable[[Content], Content]


class Identities:
    """All users and rules of this host. Implements `Authorizer`.

    `replace` is for whoever read what is stored; `change` is for clients. `version` rises with each of both.
    """

    def __init__(self, content: Content | None = None, key: bytes = b"") -> None:
        """`key`: a secret of this process, for what unknown users are answered."""
        self.content = content if content is not None else Content()
        self.closed = bool(self.content.users)  # clients have to log in
        self.version = 0
        self._key = key
        self._rules = Rules(self.content.rules)
        self._certificates = CertificateUsers(self.content.certificates)
        self.quotas = Quotas(self.content.quotas)
        self._watchers: list[Callable[[], None]] = []
        self.trail: Trail | None = None
        """Where log-ins and uses of rights are noted. None: nowhere."""
        self.tokens: Tokens | None = None
        """Checks bearer tokens. None: there is no log-in by them."""
        self.store: Callable[[Change], Content] | None = None
        """Applies a change to what is stored, and returns all of it. None: nothing can be changed."""

    def watch(self, told: Callable[[], None]) -> None:
        """Has `told` called after each change."""
        self._watchers.append(told)

    def replace(self, content: Content) -> None:
        """Takes over what is stored now. Open connections are told."""
        if content == self.content:
            return
        if content.quotas != self.content.quotas:
            self.quotas.replace(content.quotas)
        self.content = content
        self._rules = Rules(content.rules)
        self._certificates = CertificateUsers(content.certificates)
        # The deletion of the last user does not open the host to everybody: that takes a new start.
        self.closed = self.closed or bool(content.users)
        self.version += 1
        for told in self._watchers:
            told()

    def change(self, change: Change) -> None:
        """Changes what is stored. Raises STORAGE if the disk refuses, NOT_SUPPORTED without a store."""
        if self.store is None:
            raise TreecastError(
                Fault.NOT_SUPPORTED, "this host has no file of users: give --access-file FILE"
            )
        self.replace(self.store(change))

    # --- log-ins

    def knows(self, name: str) -> bool:
        return name in self.content.users

    def admits(self, name: str, address: str) -> bool:
        """Whether there is a user of this name, who may come from `address`; "" or HERE: this machine."""
        user = self.content.users.get(name)
        return user is not None and (not user.local or address in _HERE)

    def is_admin(self, name: str) -> bool:
        user = self.content.users.get(name)
        return user is not None and user.admin

    def user_of(self, certificate: Mapping[str, object]) -> str:
        """Returns the user of a verified certificate, who need not be known; "" if it is nobody's."""
        return self._certificates.user_of(certificate)

    def verifier(self, mechanism: str, name: str, address: str = "") -> Verifier:
        """Returns a user's verifier; of one that does not exist, or may not come from `address`, something
        that nothing fits.
        """
        user = self.content.users.get(name) if self.admits(name, address) else None
        found = user.verifiers.get(mechanism) if user is not None else None
        if found is not None:
            return found
        known = [
            one.verifiers[mechanism] for one in self.content.users.values() if mechanism in one.verifiers
        ]
        return made_up(mechanism, name, self._key, known[0].iterations if known else ITERATIONS)

    def logged_in(self, face: str, principal: Principal, rule: str, *, allowed: bool) -> None:
        """Notes a log-in that succeeded or failed, where clients have to log in. `rule`: how, or why not."""
        if self.trail is not None and self.closed:
            self.trail.logged_in(face, principal, rule, allowed=allowed)

    # --- decisions

    def decide(self, principal: Principal, operation: Operation, resource: Resource) -> Decision:
        found = self._beyond_rules(principal)
        return found or self._rules.decide(principal, operation, resource.kind, resource.name)

    def decide_any(self, principal: Principal, operation: Operation, kind: ResourceKind) -> Decision:
        return self._beyond_rules(principal) or self._rules.decide_any(principal, operation, kind)

    def decide_all(
        self, principal: Principal, operation: Operation, kind: ResourceKind, prefix: str
    ) -> Decision:
        return self._beyond_rules(principal) or self._rules.decide_all(principal, operation, kind, prefix)

    def _beyond_rules(self, principal: Principal) -> Decision | None:
        if not self.closed:
            return _OPEN
        if principal.kind is not PrincipalKind.USER:
            return None
        if principal.proof is Proof.CERTIFICATE and not self.knows(principal.name):
            return _NO_USER
        if self.knows(principal.name) and not self.admits(principal.name, principal.address):
            return _LOCAL
        return _ADMIN if self.is_admin(principal.name) else None


def with_rules(rules: Iterable[Rule]) -> Change:
    """Returns the change that adds rules."""
    added = tuple(rules)
    return lambda content: msgspec.structs.replace(
        content, rules=tuple(dict.fromkeys((*content.rules, *added)))
    )


def without_rules(rules: Iterable[Rule]) -> Change:
    """Returns the change that removes rules."""
    gone = frozenset(rules)
    return lambda content: msgspec.structs.replace(
        content, rules=tuple([one for one in content.rules if one not in gone])
    )
