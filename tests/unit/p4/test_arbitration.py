"""The choice of the primary: the specification's rules one by one, and invariants over random sequences."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.dataplane.p4.p4runtime.arbitration import Arbitration, Notice
from treecast.middleware.dataplane.p4.p4runtime.errors import Code, P4RuntimeError


def _codes(notices: list[Notice]) -> dict[object, Code]:
    return {notice.client: notice.code for notice in notices}


def test_the_highest_is_primary_and_all_are_told_when_it_changes() -> None:
    arbitration = Arbitration()
    assert _codes(arbitration.update("a", "", 5)) == {"a": Code.OK}
    assert _codes(arbitration.update("b", "", 3)) == {"b": Code.ALREADY_EXISTS}
    assert _codes(arbitration.update("c", "", 9)) == {
        "a": Code.ALREADY_EXISTS,
        "b": Code.ALREADY_EXISTS,
        "c": Code.OK,
    }
    assert arbitration.may_write("", 9)
    assert not arbitration.may_write("", 5)
    assert not arbitration.may_write("", None)


def test_without_an_id_nobody_becomes_primary() -> None:
    arbitration = Arbitration()
    (notice,) = arbitration.update("a", "", None)
    assert (notice.code, notice.election_id) == (Code.NOT_FOUND, None)
    assert _codes(arbitration.update("b", "", 0)) == {"a": Code.ALREADY_EXISTS, "b": Code.OK}


def test_when_the_primary_goes_nobody_follows_until_an_id_as_high_comes() -> None:
    arbitration = Arbitration()
    arbitration.update("a", "", 5)
    arbitration.update("b", "", 3)
    (notice,) = arbitration.leave("a")
    assert (notice.client, notice.code, notice.election_id) == ("b", Code.NOT_FOUND, 5)
    assert not arbitration.may_write("", 5)
    assert _codes(arbitration.update("b", "", 4)) == {"b": Code.NOT_FOUND}
    assert _codes(arbitration.update("b", "", 5)) == {"b": Code.OK}


def test_a_primary_may_step_down() -> None:
    arbitration = Arbitration()
    arbitration.update("a", "", 5)
    arbitration.update("b", "", 3)
    assert _codes(arbitration.update("a", "", 1)) == {"a": Code.NOT_FOUND, "b": Code.NOT_FOUND}
    assert arbitration.primaries() == []


def test_roles_are_apart() -> None:
    arbitration = Arbitration()
    arbitration.update("a", "", 5)
    assert _codes(arbitration.update("b", "other", 1)) == {"b": Code.OK}
    assert arbitration.primaries() == ["a", "b"]
    assert arbitration.knows_role("other")
    assert not arbitration.knows_role("third")
    with pytest.raises(P4RuntimeError, match="has the role") as caught:
        arbitration.update("b", "", 9)
    assert caught.value.code is Code.FAILED_PRECONDITION


def test_an_id_of_another_live_client_is_refused() -> None:
    arbitration = Arbitration()
    arbitration.update("a", "", 5)
    # finsy looks for these words
    with pytest.raises(P4RuntimeError, match="election id 5 exists already") as caught:
        arbitration.update("b", "", 5)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert arbitration.leave("b") == []


def test_clients_are_bounded() -> None:
    arbitration = Arbitration(most_clients=2)
    arbitration.update("a", "", 5)
    arbitration.update("b", "", 6)
    with pytest.raises(P4RuntimeError) as caught:
        arbitration.update("c", "", 7)
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    arbitration.leave("a")
    arbitration.update("c", "", 7)


_STEP = st.tuples(
    st.sampled_from("abcd"), st.sampled_from(["", "r"]), st.none() | st.integers(0, 5), st.booleans()
)


@settings(max_examples=60)
@given(st.lists(_STEP, max_size=30))
def test_no_run_breaks_the_invariants(steps: list[tuple[str, str, int | None, bool]]) -> None:
    arbitration = Arbitration()
    for client, role, election_id, leaves in steps:
        if leaves:
            arbitration.leave(client)
        else:
            with contextlib.suppress(P4RuntimeError):
                arbitration.update(client, role, election_id)
        arbitration.check_invariants()
