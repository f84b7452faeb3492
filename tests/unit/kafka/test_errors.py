"""Every fault has a Kafka code; some requests and old versions use another code for it."""

from __future__ import annotations

import kafka.errors
import pytest

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.shims.kafka import errors
from treecast.shims.kafka import versions as v

NEWER = {errors.INVALID_REGULAR_EXPRESSION}  # than kafka-python's table


@pytest.mark.parametrize("fault", Fault)
def test_every_fault_is_mapped(fault: Fault) -> None:
    code = errors.CODES[fault]
    assert code != errors.NONE
    assert code in kafka.errors.kafka_errors or code in NEWER


def test_only_internal_errors_are_unknown() -> None:
    unknown = [fault for fault, code in errors.CODES.items() if code == errors.UNKNOWN_SERVER_ERROR]
    assert unknown == [Fault.INTERNAL]


def test_constants_are_the_codes_of_kafka() -> None:
    """The names are those of Kafka's Errors; kafka-python shares the numbers, and most of the names."""
    assert kafka.errors.ProducerFencedError.errno == errors.PRODUCER_FENCED
    assert kafka.errors.MemberIdRequiredError.errno == errors.MEMBER_ID_REQUIRED
    assert kafka.errors.FetchSessionIdNotFoundError.errno == errors.FETCH_SESSION_ID_NOT_FOUND
    assert kafka.errors.OperationNotAttemptedError.errno == errors.OPERATION_NOT_ATTEMPTED
    assert kafka.errors.UnsupportedEndpointTypeError.errno == errors.UNSUPPORTED_ENDPOINT_TYPE


@pytest.mark.parametrize(
    ("fault", "key", "version", "code"),
    [
        (Fault.PRODUCER_FENCED, v.INIT_PRODUCER_ID, 3, errors.INVALID_PRODUCER_EPOCH),
        (Fault.PRODUCER_FENCED, v.INIT_PRODUCER_ID, 4, errors.PRODUCER_FENCED),
        (Fault.PRODUCER_FENCED, v.END_TXN, 1, errors.INVALID_PRODUCER_EPOCH),
        (Fault.PRODUCER_FENCED, v.END_TXN, 2, errors.PRODUCER_FENCED),
        (Fault.PRODUCER_FENCED, v.PRODUCE, 12, errors.INVALID_PRODUCER_EPOCH),
        (Fault.STORAGE, v.PRODUCE, 3, errors.NOT_LEADER_OR_FOLLOWER),
        (Fault.STORAGE, v.PRODUCE, 4, errors.KAFKA_STORAGE_ERROR),
        (Fault.STORAGE, v.FETCH, 5, errors.NOT_LEADER_OR_FOLLOWER),
        (Fault.STORAGE, v.FETCH, 6, errors.KAFKA_STORAGE_ERROR),
        (Fault.COORDINATOR_LOADING, v.TXN_OFFSET_COMMIT, 1, errors.COORDINATOR_NOT_AVAILABLE),
        (Fault.COORDINATOR_LOADING, v.HEARTBEAT, 0, errors.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_spelling_by_request_and_version(fault: Fault, key: int, version: int, code: int) -> None:
    assert errors.code_for(TreecastError(fault), key, version) == code
