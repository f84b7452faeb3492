"""The authority of a secured cluster: tokens, names, expulsions, keys, and who may call what."""

from __future__ import annotations

from pathlib import Path

import pytest

from treecast.middleware.api import certificates
from treecast.middleware.api.certificates import ADMINISTRATOR, HOST, Identity, Subject
from treecast.middleware.api.one_time_token import OneTimeToken
from treecast.middleware.api.private_file import write_private
from treecast.middleware.api.trust import Trust
from treecast.middleware.api.trust_calls import (
    HEAD,
    LONGEST_ANSWER,
    CreateToken,
    Done,
    Expel,
    Follow,
    Hello,
    Hosts,
    Join,
    Joined,
    Keys,
    ListHosts,
    Renew,
    Rotate,
    TokenCreated,
    frame,
    length_of,
)
from treecast.middleware.api.trust_files import AUTHORITY, HOST_CERTIFICATE, HOST_KEY, make_folder
from treecast.middleware.control.trust.authority import LEDGER, Authority, found_authority
from treecast.middleware.control.trust.ledger import MAX_HELD, read_ledger, write_ledger
from treecast.middleware.model.errors import TreecastError

NOW = 1_800_000_000.0


class Cluster:
    """An authority at a clock of its own, with an administrator's and hosts' calls."""

    def __init__(self, data: Path) -> None:
        self.now = NOW
        self.folder = make_folder(data)
        self.authority = found_authority(self.folder, "c1", lambda: self.now)
        made = self.authority.give_own(
            certificates.request(certificates.new_key()), Subject("c1", ADMINISTRATOR, "root")
        )
        self.root = certificates.identity_of(made)

    def token(self, seconds: float = 60.0, name: str = "") -> OneTimeToken:
        found = self.authority.answer(CreateToken(seconds, name), self.root)
        assert isinstance(found, TokenCreated)
        return OneTimeToken.parse(found.token)

    def join(self, name: str, token: OneTimeToken, key: bytes | None = None) -> Identity:
        asked = certificates.request(key or certificates.new_key())
        found = self.authority.answer(Join(token.id, token.secret, name, asked), None)
        assert isinstance(found, Joined)
        return certificates.identity_of(found.certificate)

    def expel(self, name: str) -> Done:
        found = self.authority.answer(Expel(name), self.root)
        assert isinstance(found, Done)
        return found


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_a_host_joins_once(cluster: Cluster) -> None:
    token = cluster.token()
    identity = cluster.join("h2", token)
    assert (identity.role, identity.name, identity.cluster_id) == (HOST, "h2", "c1")
    with pytest.raises(TreecastError, match="was used by host h2"):
        cluster.join("h3", token)
    with pytest.raises(TreecastError, match="was used by host h2"):
        cluster.join("h2", token)  # another key


def test_a_lost_answer_is_asked_for_again(cluster: Cluster) -> None:
    token, key = cluster.token(), certificates.new_key()
    assert cluster.join("h2", token, key).name == cluster.join("h2", token, key).name


def test_wrong_expired_and_named_tokens(cluster: Cluster) -> None:
    token = cluster.token(60)
    wrong = OneTimeToken(token.id, bytes(16), token.authority)
    with pytest.raises(TreecastError, match="not of this cluster"):
        cluster.join("h2", wrong)
    with pytest.raises(TreecastError, match="is for host h7"):
        cluster.join("h2", cluster.token(60, "h7"))
    cluster.now += 61
    with pytest.raises(TreecastError, match="expired"):
        cluster.join("h2", token)


def test_a_name_belongs_to_one_host_until_it_is_expelled(cluster: Cluster) -> None:
    first = cluster.join("h2", cluster.token())
    with pytest.raises(TreecastError, match="there is a host h2"):
        cluster.join("h2", cluster.token())
    cluster.expel("h2")
    second = cluster.join("h2", cluster.token())
    assert not cluster.authority.holds(first)
    assert cluster.authority.holds(second)


def test_an_expulsion_changes_the_key_and_lasts(cluster: Cluster) -> None:
    identity, before = cluster.join("h2", cluster.token()), cluster.authority.keys()
    told = []
    cluster.authority.on_keys.append(told.append)
    cluster.expel("h2")
    again = Authority(cluster.folder, lambda: cluster.now, str)  # as after a restart
    for authority in (cluster.authority, again):
        keys = authority.keys()
        assert not set(before.keys.values()) & set(keys.keys.values())
        assert keys.expelled == [f"{identity.serial:x}"]
        with pytest.raises(TreecastError, match="was expelled"):
            authority.answer(Renew(certificates.request(certificates.new_key())), identity)
    assert [one.generation for one in told] == [before.generation + 1]


def test_a_planned_change_keeps_the_key_before_it(cluster: Cluster) -> None:
    first = cluster.authority.keys()
    cluster.authority.answer(Rotate(), cluster.root)
    second = cluster.authority.keys()
    assert second.keys[first.current] == first.keys[first.current]
    cluster.authority.answer(Rotate(), cluster.root)
    assert set(cluster.authority.keys().keys) == {second.current, second.current + 1}


def test_who_may_call_what(cluster: Cluster) -> None:
    host = cluster.join("h2", cluster.token())
    stranger = Identity("c2", ADMINISTRATOR, "root", cluster.root.serial)
    unknown = Identity("c1", ADMINISTRATOR, "root", 1)  # signed before the ledger was lost
    for call in (CreateToken(60), Expel("h2"), Rotate(), ListHosts()):
        for caller in (None, host, stranger, unknown):
            with pytest.raises(TreecastError):
                cluster.authority.answer(call, caller)
    with pytest.raises(TreecastError, match="certificate of a host"):
        cluster.authority.answer(Renew(b""), None)
    cluster.authority.answer(Hello(), None)
    listed = cluster.authority.answer(ListHosts(), cluster.root)
    assert isinstance(listed, Hosts)
    assert [(one.name, one.role) for one in listed.issued] == [("root", ADMINISTRATOR), ("h2", HOST)]


def test_a_host_cannot_ask_for_the_name_of_another(cluster: Cluster) -> None:
    token, asked = cluster.token(), certificates.request(certificates.new_key())
    with pytest.raises(TreecastError, match="are numbers"):
        cluster.authority.answer(Join(token.id, token.secret, "h2", asked, ["coordinator.treecast"]), None)
    with pytest.raises(TreecastError, match="host name"):
        cluster.authority.answer(Join(token.id, token.secret, "a/b", asked), None)


def test_the_ledger_is_read_as_written(cluster: Cluster) -> None:
    cluster.join("h2", cluster.token())
    assert read_ledger(write_ledger(cluster.authority.ledger)) == cluster.authority.ledger
    for wrong in (b"", b"{}", b'{"cluster_id":"c","generation":1,"current":2,"keys":{"1":"00"}}'):
        with pytest.raises(TreecastError):
            read_ledger(wrong)


def test_files_are_for_their_owner_only(cluster: Cluster) -> None:
    assert {one.stat().st_mode & 0o777 for one in cluster.folder.iterdir()} == {0o600}
    assert cluster.folder.stat().st_mode & 0o777 == 0o700


def test_an_expelled_host_does_not_join_again_by_a_token_of_before(cluster: Cluster) -> None:
    key, token = certificates.new_key(), cluster.token(3600.0)
    cluster.join("h2", token, key)
    unused = cluster.token(3600.0, name="h2")
    cluster.expel("h2")
    for one in (token, unused):
        with pytest.raises(TreecastError, match="has expired"):
            cluster.join("h2", one, key)
    cluster.join("h2", cluster.token(), key)


@pytest.mark.parametrize("name", ["coordinator.treecast", "Host.Treecast", "localhost"])
def test_no_host_has_a_name_of_the_cluster_itself(cluster: Cluster, name: str) -> None:
    with pytest.raises(TreecastError, match="choose another --name"):
        cluster.join(name, cluster.token())


def test_a_certificate_is_renewed_in_the_second_half_of_its_time(cluster: Cluster) -> None:
    key = certificates.new_key()
    host = cluster.join("h2", cluster.token(), key)
    renew = Renew(certificates.request(key))
    with pytest.raises(TreecastError, match="renew it later"):
        cluster.authority.answer(renew, host)
    cluster.now += 250 * 86_400
    renewed = cluster.authority.answer(renew, host)
    assert isinstance(renewed, Joined)
    assert certificates.identity_of(renewed.certificate).until > host.until


def held(cluster: Cluster, name: str) -> list[str]:
    """Returns the serial numbers of a host's certificates that are accepted."""
    found = cluster.authority.answer(ListHosts(), cluster.root)
    assert isinstance(found, Hosts)
    return [one.serial for one in found.issued if one.name == name and not one.expelled]


def test_a_host_that_joins_again_and_again_holds_one_certificate(cluster: Cluster) -> None:
    token, key = cluster.token(), certificates.new_key()
    joined = [cluster.join("h2", token, key) for _ in range(10)]
    assert held(cluster, "h2") == [f"{joined[-1].serial:x}"]
    assert [cluster.authority.holds(one) for one in joined] == [False] * 9 + [True]
    again = Authority(cluster.folder, lambda: cluster.now, str)
    assert again.holds(joined[-1])
    cluster.expel("h2")
    cluster.join("h2", cluster.token(), key)
    assert not cluster.authority.holds(joined[-1])
    assert f"{joined[-1].serial:x}" in cluster.authority.keys().expelled, "it is not forgotten"


def test_a_host_that_renews_again_and_again_holds_few_certificates(cluster: Cluster) -> None:
    """Its answers are lost, or its disk is full: the one that it calls by stays."""
    key = certificates.new_key()
    host = cluster.join("h2", cluster.token(), key)
    cluster.now += 250 * 86_400
    renew = Renew(certificates.request(key))
    for _ in range(10):
        last = cluster.authority.answer(renew, host)
    assert len(held(cluster, "h2")) == MAX_HELD
    assert cluster.authority.holds(host)
    assert isinstance(last, Joined)
    assert cluster.authority.holds(certificates.identity_of(last.certificate))
    assert cluster.authority.holds(cluster.root)


def test_the_host_of_the_authority_is_not_expelled(cluster: Cluster) -> None:
    asked = certificates.request(certificates.new_key())
    own = cluster.authority.give_own(asked, Subject("c1", HOST, "h1", coordinator=True))
    write_private(cluster.folder / HOST_CERTIFICATE, own)
    with pytest.raises(TreecastError, match="has the authority"):
        cluster.expel("h1")


def test_a_strangers_request_is_not_read(cluster: Cluster) -> None:
    token = cluster.token()
    with pytest.raises(TreecastError, match="not of this cluster"):
        cluster.authority.answer(Join(token.id, b"another secret", "h2", b"no request"), None)


def test_keys_with_many_expelled_certificates_are_read() -> None:
    keys = Keys(1, 1, {1: bytes(32)}, [f"{number:040x}" for number in range(10_000)])
    message = frame(keys)
    assert length_of(message[:HEAD], LONGEST_ANSWER) == len(message) - HEAD
    with pytest.raises(TreecastError):
        length_of(message[:HEAD])


async def heard(authority: Authority, identity: Identity, generation: int) -> Keys:
    """Returns what a host that follows is told first."""
    answers = authority.follow(Follow(generation), identity)
    found = await anext(answers)
    await answers.aclose()
    assert isinstance(found, Keys)
    return found


def restored(cluster: Cluster, ledger: bytes) -> Authority:
    write_private(cluster.folder / LEDGER, ledger)
    return Authority(cluster.folder, lambda: cluster.now, str)


async def test_an_older_ledger_goes_beyond_what_hosts_have_heard(cluster: Cluster, tmp_path: Path) -> None:
    """All that it has forgotten is refused everywhere: hosts that joined since, and those expelled since."""
    second, expelled = cluster.join("h2", cluster.token()), cluster.join("h3", cluster.token())
    backup = (cluster.folder / LEDGER).read_bytes()
    trust = host_trust(cluster, tmp_path / "h2", "h2")
    trust.learn(cluster.authority.keys())
    cluster.authority.on_keys.append(trust.learn)
    since = cluster.join("h4", cluster.token())
    cluster.expel("h3")
    cluster.authority.answer(Rotate(), cluster.root)
    lost = trust.keys
    assert trust.accepts(since)
    assert not trust.accepts(expelled)

    authority = restored(cluster, backup)
    assert authority.keys().generation < lost.generation
    keys = await heard(authority, second, lost.generation)
    assert keys.generation == lost.generation + 1
    assert keys.current not in lost.keys
    assert "restored to an older state" in authority.trouble
    trust.learn(keys)
    assert trust.keys.current == keys.current
    assert not trust.accepts(since)
    assert not trust.accepts(expelled), "this host has heard of it"
    assert trust.accepts(second)
    with pytest.raises(TreecastError, match="that the authority does not know"):
        await heard(authority, since, 0)
    again = Trust(tmp_path / "h2")  # after a restart
    assert not again.accepts(expelled)
    assert not again.accepts(since)


async def test_the_authoritys_own_host_remembers_expulsions(cluster: Cluster) -> None:
    expelled = cluster.join("h3", cluster.token())
    backup = (cluster.folder / LEDGER).read_bytes()
    cluster.expel("h3")
    kept = cluster.authority.keys()
    authority = restored(cluster, backup)
    assert authority.holds(expelled)
    authority.catch_up(kept)
    assert not authority.holds(expelled)
    assert authority.keys().generation == kept.generation + 1
    authority.catch_up(kept)
    assert authority.keys().generation == kept.generation + 1


async def test_what_an_expelled_host_holds_is_worth_nothing_to_a_restored_ledger(cluster: Cluster) -> None:
    """Neither the key of that time, nor the token that it has used, nor one that it has found."""
    key, used, found = certificates.new_key(), cluster.token(3600.0), cluster.token(3600.0)
    backup = (cluster.folder / LEDGER).read_bytes()  # the token is unused in it
    witness = cluster.join("h2", cluster.token())
    cluster.join("h3", used, key)
    held = cluster.authority.keys()
    later = (cluster.folder / LEDGER).read_bytes()
    cluster.expel("h3")
    kept = cluster.authority.keys()
    for ledger in (backup, later):
        cluster.authority = restored(cluster, ledger)
        cluster.authority.catch_up(kept)
        assert not set(held.keys.values()) & set(cluster.authority.keys().keys.values())
        for token in (used, found):
            with pytest.raises(TreecastError, match="has expired"):
                cluster.join("h3", token, key)
        assert "All tokens have ended" in cluster.authority.trouble
    cluster.join("h5", cluster.token())
    assert cluster.authority.holds(witness)


async def test_no_host_moves_the_generation_far(cluster: Cluster) -> None:
    host = cluster.join("h2", cluster.token())
    before = cluster.authority.keys()
    with pytest.raises(TreecastError, match="after that of the authority"):
        await heard(cluster.authority, host, 1 << 60)
    assert cluster.authority.keys() == before


def host_trust(cluster: Cluster, data: Path, name: str) -> Trust:
    """Returns the trust of a host, which has a certificate besides that of its test."""
    folder, key = make_folder(data), certificates.new_key()
    write_private(folder / HOST_KEY, key)
    subject = Subject("c1", HOST, name)
    write_private(folder / HOST_CERTIFICATE, cluster.authority.give_own(certificates.request(key), subject))
    write_private(folder / AUTHORITY, (cluster.folder / AUTHORITY).read_bytes())
    return Trust(data)


def test_hosts_hear_of_each_certificate(cluster: Cluster, tmp_path: Path) -> None:
    """One that the authority has not told of is refused, whoever has signed it."""
    trust = host_trust(cluster, tmp_path / "h2", "h2")
    trust.learn(cluster.authority.keys())
    unheard = cluster.join("h3", cluster.token())
    assert not trust.accepts(unheard)
    trust.learn(cluster.authority.keys())
    assert trust.accepts(unheard)
    older = Keys(trust.keys.generation + 1, trust.keys.current, trust.keys.keys)  # tells no certificates
    trust.learn(older)
    assert trust.accepts(unheard)
    assert trust.accepts(Identity("c1", HOST, "h9", 99))
