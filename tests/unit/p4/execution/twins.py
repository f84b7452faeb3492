"""Two switches that run one program, one interpreted, one generated, with the same random control plane."""

from __future__ import annotations

from pathlib import Path
from random import Random

from treecast.middleware.dataplane.p4.frontend import load_program
from treecast.middleware.dataplane.p4.runtime import (
    Action,
    ActionCall,
    CloneSession,
    ControlError,
    DigestConfig,
    Entry,
    ExactMatch,
    GroupEntry,
    GroupMember,
    GroupRef,
    LpmMatch,
    Match,
    Matches,
    MemberEntry,
    MemberRef,
    MeterConfig,
    MulticastGroup,
    OneShot,
    OptionalMatch,
    RangeMatch,
    Replica,
    Switch,
    TernaryMatch,
    ValueSetMember,
    WeightedCall,
)
from treecast.middleware.dataplane.p4.runtime.arrays import MeterArray, RegisterArray
from treecast.middleware.dataplane.p4.runtime.profiles import Profile
from treecast.middleware.dataplane.p4.runtime.shapes import ActionShape, KeyShape
from treecast.middleware.dataplane.p4.runtime.tables import TableState

PROGRAMS = Path(__file__).with_name("programs")
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.p4"))


def switch(name: str, interpret: bool = False, seed: int = 1) -> Switch:
    """A switch with ports 0 to 399."""
    path = PROGRAMS / f"{name}.p4"
    program = load_program(path.read_text(), path.name)
    return Switch(program, ports=range(400), seed=seed, interpret=interpret)


def random_match(random: Random, key: KeyShape) -> Match | None:
    value = random.choice([0, 1, random.getrandbits(key.width), key.ones]) & key.ones
    kind = key.kind.value
    if kind == "exact":
        return ExactMatch(value)
    if random.random() < 0.2:
        return None
    if kind == "lpm":
        prefix = random.choice([0, 1, 1, 8, random.randint(0, key.width)])
        return LpmMatch(value & (key.ones >> prefix ^ key.ones), prefix)
    if kind == "optional":
        return OptionalMatch(value)
    other = random.getrandbits(key.width)
    if kind == "range":
        return RangeMatch(min(value, other), max(value, other))
    return TernaryMatch(value & other, other)


def random_matches(random: Random, keys: tuple[KeyShape, ...]) -> Matches:
    pairs = [(key.name, random_match(random, key)) for key in keys]
    return {name: match for name, match in pairs if match is not None}


def random_call(random: Random, actions: list[ActionShape]) -> ActionCall:
    action = random.choice(actions)
    return ActionCall(action.name, {p.name: random.getrandbits(p.width) for p in action.params})


def random_action(random: Random, table: TableState) -> Action:
    actions = [one for one in table.shape.actions.values() if one.in_entries]
    if table.profile is None:
        return random_call(random, actions)
    if not table.profile.is_selector:
        return MemberRef(random.randint(0, 2))
    calls = [random_call(random, actions) for _ in range(2)]
    one_shot = OneShot((WeightedCall(calls[0], 2), WeightedCall(calls[1])))
    return random.choice([GroupRef(1), GroupRef(2), MemberRef(0), one_shot])


def fill(one: Switch, random: Random) -> None:
    """Adds random entries, members, groups, sessions and cells."""
    machine, control = one._machine, one.control
    for name, extern in control._externs.items():
        if isinstance(extern, Profile):
            for member in range(3):
                call = random_call(random, list(extern.actions.values()))
                control.profile(name).insert_member(MemberEntry(member, call))
            if extern.is_selector:
                control.profile(name).insert_group(
                    GroupEntry(1, (GroupMember(0, 2), GroupMember(1), GroupMember(2)))
                )
                control.profile(name).insert_group(GroupEntry(2))
        elif isinstance(extern, RegisterArray):
            for index in range(min(extern.size, 8)):
                control.register(name).write(index, random.getrandbits(extern.width))
        elif isinstance(extern, MeterArray):
            control.meter(name).write(None, MeterConfig(10, 3, 20, 6))
    for table in machine.tables:
        for _ in range(8):
            add_entry(one, table, random)
    for group in range(1, 200):
        replicas = tuple(Replica(port, rid) for rid, port in enumerate(random.sample(range(8), 3)))
        control.replication.insert_group(MulticastGroup(group, replicas))
    control.replication.insert_session(CloneSession(5, (Replica(3, 4), Replica(9, 1)), packet_length=5))
    control.replication.insert_session(CloneSession(6, (Replica(2, 1),)))
    for digest in machine.digests:
        control.digest(digest).insert(DigestConfig())
    for values in machine.value_sets:
        members = [ValueSetMember(random_matches(random, values.keys)) for _ in range(2)]
        control.value_set(values.name).set(members)


def add_entry(one: Switch, table: TableState, random: Random) -> None:
    priority = random.randint(1, 9) if table.shape.ranked else 0
    meter = MeterConfig(50, 40, 80, 60) if table.metered and random.random() < 0.7 else None
    matches = random_matches(random, table.shape.keys)
    entry = Entry(matches, random_action(random, table), priority, meter=meter)
    try:
        one.control.table(table.shape.name).insert(entry)
    except ControlError:
        pass  # a repeat, or a table whose entries are const


def state(one: Switch) -> list[object]:
    """Returns all state that packets may have changed."""
    machine = one._machine
    cells: list[object] = [x.cells for x in machine.externs if isinstance(x, RegisterArray)]
    counters = [
        one.control.counter(name).read_all() for name, x in one.control._externs.items() if _counts(x)
    ]
    entries = [list(table.entries(0.0)) for table in machine.tables]
    return [cells, counters, entries, one.stats(), one.log(), one.control.take_digests(1e9)]


def _counts(extern: object) -> bool:
    return type(extern).__name__ == "CounterArray"
