"""Password checks: on few threads, in turn, and answered late when they fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from tests.unit.loops import holds

from treecast.middleware.model.visitors import LOCAL
from treecast.shims.amqp.access import PasswordAccess
from treecast.shims.amqp.users import User, Users, hashed
from treecast.shims.log_ins import (
    FIRST,
    FORGET,
    LONGEST,
    MOST_WAITING,
    Delays,
    LogIns,
    Outcome,
    Remembered,
)
from treecast.shims.passwords import Passwords, Secret, nobody

THERE = "192.0.2.1"


class Applicant:
    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def checked(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


class Store:
    """Checks that wait until they are let through."""

    def __init__(self, right: bytes = b"right", name: bytes = b"stored") -> None:
        self.right = right
        self.may = threading.Event()
        self.threads: set[int] = set()
        self.checks: list[bytes] = []
        self.secret = Secret(self.fits, name)

    def fits(self, password: bytes) -> bool:
        assert self.may.wait(60)
        self.threads.add(threading.get_ident())
        self.checks.append(password)
        return password == self.right


@pytest.fixture
async def log_ins() -> AsyncIterator[LogIns]:
    made = LogIns(threads=1)
    yield made
    made.close()


async def test_the_loop_goes_on_while_a_password_is_checked(log_ins: LogIns) -> None:
    store, applicant = Store(), Applicant()
    log_ins.check(LOCAL, "ann", b"right", store.secret, applicant)
    for _ in range(100):
        await asyncio.sleep(0)
    assert not applicant.outcomes
    store.may.set()
    await holds(lambda: bool(applicant.outcomes))
    assert applicant.outcomes == [Outcome.FITS]
    assert threading.get_ident() not in store.threads


async def test_a_password_that_fitted_is_not_checked_again(log_ins: LogIns) -> None:
    store = Store()
    store.may.set()
    assert await log_ins.checked(LOCAL, "ann", b"right", store.secret) is Outcome.FITS
    assert await log_ins.checked(THERE, "ann", b"right", store.secret) is Outcome.FITS
    assert store.checks == [b"right"]
    changed = Store(b"other", b"stored anew")
    changed.may.set()
    assert await log_ins.checked(LOCAL, "ann", b"right", changed.secret) is Outcome.WRONG
    assert changed.checks == [b"right"]


async def test_a_flood_of_guesses_of_one_name_delays_no_other(log_ins: LogIns) -> None:
    store, others = Store(), Store(name=b"of bob")
    flood = [Applicant() for _ in range(MOST_WAITING + 10)]
    for applicant in flood:
        log_ins.check(LOCAL, "ann", b"wrong", store.secret, applicant)
    bob = Applicant()
    log_ins.check(LOCAL, "bob", b"right", others.secret, bob)
    busy = [one for one in flood if one.outcomes == [Outcome.BUSY]]
    assert len(busy) == 9  # one is checked, and a bounded number waits
    others.may.set()
    store.may.set()
    await holds(lambda: bool(bob.outcomes))
    assert bob.outcomes == [Outcome.FITS]
    assert len(store.checks) <= 3


async def test_all_unknown_names_share_a_place(log_ins: LogIns) -> None:
    store = Store()
    unknown = nobody(store.secret)
    flood = [Applicant() for _ in range(MOST_WAITING + 10)]
    for number, applicant in enumerate(flood):
        log_ins.check(LOCAL, f"name {number}", b"wrong", unknown, applicant)
    assert sum(one.outcomes == [Outcome.BUSY] for one in flood) == 9
    assert log_ins.waiting == MOST_WAITING
    store.may.set()


def test_each_wrong_password_waits_longer_up_to_a_limit() -> None:
    delays = Delays()
    found = [delays.wrong(THERE, "ann", 0.0) for _ in range(8)]
    assert found[:3] == [FIRST, 2 * FIRST, 4 * FIRST]
    assert found[-1] == LONGEST
    assert delays.wrong(THERE, "bob", 0.0) == LONGEST  # another address counts as a whole
    assert delays.wrong(LOCAL, "ann", 0.0) == FIRST
    assert delays.wrong(LOCAL, "ann", 0.0) == 2 * FIRST
    assert delays.wrong(LOCAL, "bob", 0.0) == FIRST  # local applications share an address
    assert delays.wrong(THERE, "ann", FORGET + 1) == FIRST


def test_the_tables_are_bounded() -> None:
    delays, remembered = Delays(), Remembered()
    secret = Secret(lambda password: True, b"stored")
    for number in range(20_000):
        delays.wrong(LOCAL, str(number), 0.0)
        remembered.add(str(number), b"word", secret)
    assert len(delays._wrong) == len(remembered._digests) == 10_000
    assert not remembered.knows("1", b"word", secret)
    assert remembered.knows("19999", b"word", secret)


async def test_right_passwords_pass_at_once_whatever_was_tried_before(log_ins: LogIns) -> None:
    store = Store()
    store.may.set()
    wrong = [Applicant() for _ in range(10)]
    for applicant in wrong:
        log_ins.check(LOCAL, "ann", b"wrong", store.secret, applicant)
    right = Applicant()
    log_ins.check(LOCAL, "ann", b"right", store.secret, right)
    await holds(lambda: bool(right.outcomes))
    assert right.outcomes == [Outcome.FITS]
    assert sum(bool(one.outcomes) for one in wrong) < len(wrong)  # the last of them wait for seconds


async def test_a_closed_store_of_checks_answers_nobody(log_ins: LogIns) -> None:
    store, applicant = Store(), Applicant()
    for _ in range(3):
        log_ins.check(LOCAL, "ann", b"right", store.secret, applicant)
    log_ins.close()
    assert log_ins.waiting == 0
    store.may.set()


# --- the time of a check tells no names

# `mosquitto_passwd -H sha512`: user "ann", password "word"
ANN = (
    "ann:$6$c2FsdA==$mQlxF4sXoeWX7fWgxbhjKZp8qNPwT8gYVsdHpWLDADqPqlNOkRq+cF4yCY/VMLc61SRYU4JGzF+L5NswLTUPLA=="
)
SLOW = "bob:$7$1000$c2FsdA==$" + "QUJD" * 21 + "QQ=="


class Counted:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr("hashlib.pbkdf2_hmac", self.made)

    def made(self, name: str, password: bytes, salt: bytes, iterations: int, size: int) -> bytes:
        self.count += 1
        return bytes(size)


def test_an_unknown_name_costs_as_much_as_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    passwords = Passwords(SLOW)
    for name in ("bob", "nobody", ""):
        assert not passwords.secret(name).fits(b"word")
        assert not passwords.fits(name, b"word")
        assert not passwords.secret(name).cheap
    assert counted.count == 6


def test_a_user_of_management_calls_costs_as_much_as_one_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    access = PasswordAccess(Passwords(SLOW), _Recorder())
    access.put(User("added", hashed(b"word", b"salt")))
    for name, fits in (("added", True), ("bob", False), ("guest", False), ("nobody", False)):
        secret = access.secret(name)
        assert (secret.fits(b"word"), secret.cheap) == (fits, False)
    assert counted.count == 4


def test_nothing_fits_the_secret_of_nobody() -> None:
    for secret in (Users().secret("x"), Passwords("").secret("x"), Passwords(ANN).secret("x")):
        assert not any(secret.fits(word) for word in (b"", b"word", b"guest"))
        assert not secret.stored


class _Recorder:
    def declared(self, kind: str, name: bytes, definition: object) -> None:
        """Nothing is kept."""
