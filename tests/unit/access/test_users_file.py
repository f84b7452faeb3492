"""`users.toml`: as text and back, every mistake with its place, and the file on disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.provider import AUDIENCE, Provider

from treecast.middleware.api.private_file import stamp_of
from treecast.middleware.broker.access import (
    BearerError,
    Content,
    Identities,
    OAuth,
    Operation,
    Pattern,
    Permission,
    Quota,
    Rate,
    ResourceKind,
    Rule,
    User,
    UsersFileError,
    read_users,
    with_rules,
    write_users,
)
from treecast.middleware.daemon import users_file
from treecast.middleware.daemon.listeners import StartError
from treecast.middleware.daemon.users_file import (
    WatchedUsers,
    change_users,
    load_users,
    warn_of_open_doors,
)
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.scram import SHA256, SHA512, verifier
from treecast.shims.face import OpenListener

VERIFIERS = {one: verifier(one, b"secret", b"salt", 4096) for one in (SHA256, SHA512)}
NAMES = st.text(min_size=1, max_size=20).filter(
    lambda text: text.isprintable() and text not in ("*", "ANONYMOUS")
)
ANYTHING = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
USERS = st.builds(
    User,
    name=NAMES,
    verifiers=st.sampled_from([{}, VERIFIERS, {SHA512: VERIFIERS[SHA512]}]),
    admin=st.booleans(),
    local=st.booleans(),
)
RATES = st.floats(min_value=0.001, max_value=1e12)
QUOTAS = st.builds(
    Quota,
    user=NAMES,
    client_id=st.just("") | ANYTHING,
    rates=st.dictionaries(st.sampled_from([Rate.PRODUCE, Rate.FETCH, Rate.REQUESTS]), RATES, min_size=1),
) | st.builds(
    Quota,
    user=st.just(""),
    client_id=st.just(""),
    rates=st.fixed_dictionaries({Rate.CONNECTIONS: RATES}),
    address=ANYTHING,
)
OAUTHS = st.none() | st.builds(
    OAuth, keys=ANYTHING, audience=ANYTHING, issuer=st.just("") | ANYTHING, claim=ANYTHING
)
RULES = st.builds(
    Rule,
    user=ANYTHING,
    permission=st.sampled_from(Permission),
    operation=st.sampled_from([None, *Operation]),
    kind=st.sampled_from(ResourceKind),
    pattern=st.sampled_from(Pattern),
    name=ANYTHING,
    address=ANYTHING,
)


@given(st.lists(USERS, max_size=3), st.lists(RULES, max_size=4), st.lists(QUOTAS, max_size=3), OAUTHS)
def test_what_is_written_is_read(
    users: list[User], rules: list[Rule], quotas: list[Quota], oauth: OAuth | None
) -> None:
    mapping = ("RULE:^CN=([^,]+).*$/$1/L", 'SAN:DNS:"(.*)\\/x"/$1/')[: len(users)]
    content = Content({user.name: user for user in users}, tuple(rules), mapping, tuple(quotas), oauth)
    assert read_users(write_users(content)) == content


def test_by_hand() -> None:
    text = """
    [users.alice]
    admin = true

    [[rules]]
    permission = "deny"
    user = "*"
    operation = "all"
    resource = "topic"
    name = "secret"
    """
    rule = Rule("*", Permission.DENY, None, ResourceKind.TOPIC, Pattern.LITERAL, "secret")
    assert read_users(text) == Content({"alice": User("alice", admin=True)}, (rule,))


RULE = "[[rules]]\nuser='a'\npermission='allow'\noperation='{operation}'\nresource='topic'\nname='{name}'"
MISTAKES = {
    "[users.alice]\nadmim = true": "unknown field `admim`",
    "[users.alice]\npassword = 'x'": "unknown field `password`",
    "[users.'*']": "stands for everybody",
    "[users.'a\\nb']\n[users.\"a\\nb\"]": "printable text",
    "[users.alice]\nSCRAM-SHA-256 = 'secret'": "user 'alice': no verifier of SCRAM-SHA-256",
    "[[rules]]\nuser = 'a'": "missing required field",
    RULE.format(operation="reed", name="x"): "no operation 'reed'",
    RULE.format(operation="read", name=""): "rule 1: .*empty",
    "users = ": "Invalid value",
    "[[quotas]]\nuser = 'a'": "quota 1: give produce-bytes",
    "[[quotas]]\naddress = 'a'\nrequests = 1": "quota 1: give connections",
    "[oauth]\nkeys = 'x'": "missing required field `audience`",
    "[oauth]\nkeys = 'x'\naudience = ''": "cannot be empty",
}


@pytest.mark.parametrize(("text", "reason"), MISTAKES.items())
def test_mistakes(text: str, reason: str) -> None:
    with pytest.raises(UsersFileError, match=reason):
        read_users(text)


def add(name: str) -> User:
    return User(name, VERIFIERS)


def test_the_file_is_private_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    before = os.umask(0)
    try:
        change_users(path, lambda content: Content({"alice": add("alice")}, content.rules))
        change_users(path, lambda content: Content({**content.users, "bob": add("bob")}, content.rules))
    finally:
        os.umask(before)
    found = load_users(path)
    assert found is not None
    assert list(found.users) == ["alice", "bob"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(one.name for one in tmp_path.iterdir()) == ["users.lock", "users.toml"]


def test_a_daemon_reads_it_again(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    users = WatchedUsers(path, named=False)
    identities = users.identities
    assert not identities.closed
    change_users(path, lambda _: Content({"alice": add("alice")}))
    users.look()
    assert identities.knows("alice")
    version = identities.version
    users.look()
    assert identities.version == version
    identities.change(
        with_rules([Rule("alice", Permission.ALLOW, None, ResourceKind.TOPIC, Pattern.LITERAL, "orders")])
    )
    assert load_users(path) == identities.content
    version = identities.version
    users.look()
    assert identities.version == version, "its own change is no news"


def test_a_command_right_after_the_daemons_own_change_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has waited for the lock, and writes before the daemon does anything else."""
    path = tmp_path / "users.toml"
    users = WatchedUsers(path, named=False)
    locked = users_file._locked

    @contextmanager
    def busy(path: Path) -> Iterator[None]:
        with locked(path):
            yield
        monkeypatch.setattr(users_file, "_locked", locked)
        change_users(path, lambda content: Content({**content.users, "bob": add("bob")}))

    monkeypatch.setattr(users_file, "_locked", busy)
    users.identities.change(lambda _: Content({"alice": add("alice")}))
    assert not users.identities.knows("bob")
    users.look()
    assert users.identities.knows("bob")


def test_a_change_that_keeps_time_and_size_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    before, times = stamp_of(path), path.stat()
    while path.stat().st_ctime_ns == times.st_ctime_ns:  # the file system's clock is coarse
        path.write_text("two")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert stamp_of(path) != before


def test_a_file_that_became_wrong_or_is_gone_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    change_users(path, lambda _: Content({"alice": add("alice")}))
    users = WatchedUsers(path, named=True)
    path.write_text("[users")
    users.look()
    assert users.identities.knows("alice")
    assert "what was read before holds" in users.trouble
    with pytest.raises(TreecastError, match="the file of users"):
        users.identities.change(lambda content: content)
    path.unlink()
    users.look()
    assert users.identities.knows("alice")
    assert "it is gone" in users.trouble
    change_users(path, lambda _: Content({"bob": add("bob")}))
    users.look()
    assert users.trouble == ""
    assert list(users.identities.content.users) == ["bob"]


def test_open_doors_are_told(caplog: pytest.LogCaptureFixture) -> None:
    listeners = [
        OpenListener("kafka", "127.0.0.1:9092", None),
        OpenListener("mqtt-tls", "10.0.0.1:8883", None),
        OpenListener("control", "10.0.0.1:7671", None),
    ]
    warn_of_open_doors(Identities(Content({"alice": add("alice")})), listeners)
    assert not caplog.records
    warn_of_open_doors(Identities(), listeners)
    (warned,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert "face=mqtt-tls, address=10.0.0.1:8883, advice=treecast users add NAME --admin" in warned


def test_a_start_with_a_wrong_file(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    with pytest.raises(StartError, match="treecast users add NAME --file"):
        WatchedUsers(path, named=True)
    path.write_text("x = 1")
    with pytest.raises(StartError, match=r"users\.toml: .*unknown field `x`"):
        WatchedUsers(path, named=False)


def test_keys_of_tokens_are_read_again(tmp_path: Path) -> None:
    """New ones count; a file that became wrong or is gone changes nothing, and is told."""
    jwt = pytest.importorskip("jwt", reason="PyJWT comes with the extras `oauth` and `test`")
    first, second = Provider(jwt), Provider(jwt)
    path, keys = tmp_path / "users.toml", tmp_path / "jwks.json"
    content = Content({"a": add("a")}, oauth=OAuth(str(keys), AUDIENCE))
    change_users(path, lambda _: content)
    with pytest.raises(StartError, match="its file of keys"):
        WatchedUsers(path, named=False)
    keys.write_text(first.jwks())
    users = WatchedUsers(path, named=False)

    def accepted(provider: Provider) -> bool:
        assert users.identities.tokens is not None
        try:
            return users.identities.tokens.check(provider.token({}, now=1e9), 1e9).user == "alice"
        except BearerError:
            return False

    assert (accepted(first), accepted(second)) == (True, False)
    keys.write_text(second.jwks())
    users.look()
    assert (accepted(first), accepted(second)) == (False, True)
    keys.write_text("{}")
    users.look()
    assert "what was read before holds" in users.trouble
    assert accepted(second)
    keys.unlink()
    users.look()
    assert accepted(second)
    keys.write_text(second.jwks())
    users.look()
    assert users.trouble == ""
    change_users(path, lambda content: Content(content.users))
    users.look()
    assert users.identities.tokens is None
