"""Notes of applications: kept for whoever takes them, in order and bounded."""

from __future__ import annotations

from treecast.middleware.model.applications import JOINED, LEFT, Application, Applications


def test_notes_are_in_order_until_they_are_told() -> None:
    notes = Applications()
    notes.joined("kafka", "nobody takes this", "")
    notes.taken = True
    notes.joined("mqtt", "c" * 300, "10.0.0.1")
    notes.left("mqtt", "c", "10.0.0.1")
    assert notes.first(1) == [Application(JOINED, "mqtt", "c" * 200, "10.0.0.1")]
    notes.forget(1, 0)
    assert notes.first(9) == [Application(LEFT, "mqtt", "c", "10.0.0.1")]
    assert len(notes) == 1


def test_what_is_beyond_the_bound_is_counted() -> None:
    notes = Applications()
    notes.taken = True
    for number in range(10_005):
        notes.joined("amqp", str(number), "")
    assert (len(notes), notes.missed) == (10_000, 5)
    notes.left("amqp", "0", "")
    notes.forget(10_000, 5)
    assert (len(notes), notes.missed) == (0, 1)
