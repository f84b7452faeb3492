"""The share of `make test` that a worker takes at a time, and the order in which the workers take them.

A worker takes a file, whose tests share the fixtures of their module. In the files of PARTED they share none,
and a worker takes a test. What takes longest is begun first: begun last, it would keep other workers waiting.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

PARTED = (
    "bench/test_quick.py",
    "clients/test_homes.py",
    "fault/test_coordinator_surroundings.py",
    "fault/test_hosts.py",
    "fault/test_strangers.py",
    "network/test_forgotten_groups.py",
    "network/test_narrow_links.py",
    "network/test_relay.py",
    "tutorials/test_tutorials.py",
)

# Files and tests of more than 25 s on two cores, the longest first: `make test SLOWEST=100` shows them. The
# name of a function stands for all of its parameters.
LONGEST = (
    "clients/test_spark_measures.py",
    "clients/test_spark_pipeline.py",
    "clients/test_spark.py",
    "fault/test_hosts.py::test_hosts[old-copy]",
    "clients/agents/test_rabbitmq.py",
    "fault/test_spark_run.py",
    "tutorials/test_tutorials.py::test_spark",
    "network/test_forgotten_groups.py::test_quiet_topics_leave_a_group_that_reaches_nobody",
    "bench/test_quick.py::test_rabbitmq_is_started_loaded_and_stopped",
    "fault/test_hosts.py::test_hosts[full-disk]",
    "bench/test_quick.py::test_kafka_is_started_loaded_and_stopped",
    "clients/agents/kafka/test_follower.py",
    "bench/test_quick.py::test_records_go_through_the_kafka_bridge",
    "network/test_snaps_brokers.py",
    "network/test_rotation.py",
    "network/test_expelled_host.py",
    "clients/test_spark_notebook.py",
    "clients/test_homes.py::test_a_home_that_is_killed_is_taken_over",
    "network/test_srv6_failures.py",
    "clients/mqtt/test_shared.py",
    "fault/test_amqp_crash_run.py",
    "fault/test_mqtt_crash_run.py",
    "clients/test_exactly_once.py",
    "clients/mqtt/test_kafka_topics.py",
    "clients/agents/kafka/test_unclean.py",
    "load/test_partitions.py",
    "foreign/test_kafka_python_suite.py",
    "network/test_forgotten_groups.py::test_a_port_that_forgets_its_memberships_gets_unicast_until_it_knows_them_again",
    "network/test_narrow_links.py::test_a_switch_port_that_drops_long_frames_is_found",
    "fault/test_hosts.py::test_hosts[lan]",
    "bench/test_quick.py::test_the_amqp_face_and_a_bare_loop_are_compared",
    "walk/test_walk.py",
    "fault/test_hosts.py::test_hosts[disk-loss]",
    "bench/test_quick.py::test_the_mqtt_face_and_mosquitto_are_compared",
    "bench/test_quick.py::test_records_go_from_one_daemon_to_another",
    "tutorials/test_tutorials.py::test_p4_switches",
    "tutorials/test_tutorials.py::test_application",
    "fault/test_strangers.py::test_a_stranger_costs_what_the_page_says[control-unfinished]",
)
_RANKS = {name: rank for rank, name in enumerate(LONGEST)}


def part(node: str) -> str:
    """Returns the name, below `tests`, of what is taken together with a test."""
    name = node.removeprefix("tests/")
    file = name.split("::", 1)[0]
    return name if file in PARTED else file


def rank(node: str) -> int:
    """Returns the place of a test's part in LONGEST; of others, one beyond them."""
    name = part(node)
    return _RANKS.get(name, _RANKS.get(name.split("[", 1)[0], len(LONGEST)))


class Parts(LoadScopeScheduling):
    """Gives each worker one part after the other, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        return part(nodeid)
