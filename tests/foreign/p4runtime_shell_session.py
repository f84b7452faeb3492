"""A session of p4runtime-shell with our endpoint. Run by the Python of the shell's own environment, never by
ours:

    python p4runtime_shell_session.py ADDRESS P4INFO DEVICE_CONFIG

Prints a line `ok NAME` for every successful step; an exception ends it.
"""

import sys

import p4runtime_sh.shell as sh
from p4runtime_sh.p4runtime import P4RuntimeWriteException

FAR = "02:00:00:00:00:02"


def steps():
    yield "an entry is inserted, read, modified and deleted", entries
    yield "what a table has not is refused with its reason", refused
    yield "a default entry is modified and reset", defaults
    yield "ternary, optional and range", ternary
    yield "counters", counters
    yield "direct counters", direct_counters
    yield "meters", meters
    yield "multicast groups and clone sessions", replication
    yield "members, groups and one-shot actions", profiles
    yield "digests are enabled and disabled", digests
    yield "packets go out and come in", packets


def entries():
    entry = sh.TableEntry("MyIngress.prefix_table")(action="MyIngress.forward")
    entry.match["hdr.ethernet.dst"] = f"{FAR}/48"
    entry.action["port"] = "3"
    entry.insert()
    (read,) = list(sh.TableEntry("MyIngress.prefix_table").read())
    assert read.action["port"].value == b"\x03", read
    entry.action["port"] = "4"
    entry.modify()
    (read,) = list(sh.TableEntry("MyIngress.prefix_table").read())
    assert read.action["port"].value == b"\x04", read
    entry.delete()
    assert not list(sh.TableEntry("MyIngress.prefix_table").read())


def refused():
    entry = sh.TableEntry("MyIngress.prefix_table")(action="MyIngress.forward")
    entry.match["hdr.ethernet.dst"] = f"{FAR}/48"
    entry.action["port"] = "1"
    refusal = None
    try:
        entry.delete()
    except P4RuntimeWriteException as error:
        refusal = str(error)
    assert refusal is not None, "a missing entry was deleted without an error"
    assert "NOT_FOUND" in refusal, refusal


def default_entry(action=None):
    entry = (
        sh.TableEntry("MyIngress.prefix_table")(action=action)
        if action
        else sh.TableEntry("MyIngress.prefix_table")
    )
    entry.is_default = True
    return entry


def defaults():
    entry = default_entry("MyIngress.forward")
    entry.action["port"] = "5"
    entry.modify()
    (read,) = list(default_entry().read())
    assert read.action["port"].value == b"\x05", read
    default_entry().modify()
    (read,) = list(default_entry().read())
    assert read.action.action_name == "MyIngress.drop", read


def ternary():
    entry = sh.TableEntry("MyIngress.ternary_table")(action="MyIngress.learn")
    entry.match["hdr.ethernet.kind"] = "0x0800&&&0xff00"
    entry.match["hdr.ethernet.src"] = "5"
    entry.match["standard.ingress_port"] = "1..4"
    entry.priority = 7
    entry.insert()
    (read,) = list(sh.TableEntry("MyIngress.ternary_table").read())
    assert read.priority == 7, read
    entry.delete()


def counters():
    counter = sh.CounterEntry("MyIngress.per_port")
    counter.index = 3
    counter.packet_count = 17
    counter.modify()
    found = {one.index: one.packet_count for one in sh.CounterEntry("MyIngress.per_port").read()}
    assert found == {**dict.fromkeys(range(8), 0), 3: 17}, found


def direct_counters():
    entry = sh.TableEntry("MyIngress.exact_table")(action="MyIngress.counted")
    entry.match["hdr.ethernet.dst"] = FAR
    entry.action["port"] = "1"
    entry.insert()
    counter = sh.DirectCounterEntry("MyIngress.hits")
    counter.table_entry.match["hdr.ethernet.dst"] = FAR
    counter.packet_count = 9
    counter.modify()
    (read,) = list(sh.DirectCounterEntry("MyIngress.hits").read())
    assert read.packet_count == 9, read
    entry.delete()


def meters():
    meter = sh.MeterEntry("MyIngress.limits")
    meter.index = 2
    meter.cir, meter.cburst, meter.pir, meter.pburst = 1, 2, 3, 4
    meter.modify()
    found = {one.index: one.pir for one in sh.MeterEntry("MyIngress.limits").read()}
    assert found[2] == 3, found


def replication():
    group = sh.MulticastGroupEntry(9).add(1, 1).add(2, 1)
    group.insert()
    (read,) = list(sh.MulticastGroupEntry().read())
    assert [(one.egress_port, one.instance) for one in read.replicas] == [(1, 1), (2, 1)], read
    group.delete()
    session = sh.CloneSessionEntry(4).add(3, 1)
    session.packet_length_bytes = 64
    session.insert()
    (read,) = list(sh.CloneSessionEntry().read())
    assert (read.session_id, read.packet_length_bytes) == (4, 64), read
    session.delete()


def profiles():
    for number in (1, 2):
        member = sh.ActionProfileMember("MyIngress.spread")(member_id=number, action="MyIngress.forward")
        member.action["port"] = str(number)
        member.insert()
    group = sh.ActionProfileGroup("MyIngress.spread")(group_id=1)
    group.add(1, 1).add(2, 3)
    group.insert()
    entry = sh.TableEntry("MyIngress.selector_table")(group_id=1)
    entry.match["hdr.ethernet.kind"] = "0x0800"
    entry.insert()
    (read,) = list(sh.TableEntry("MyIngress.selector_table").read())
    assert read.group_id == 1, read
    entry.delete()
    group.delete()
    for number in (1, 2):
        sh.ActionProfileMember("MyIngress.spread")(member_id=number).delete()
    entry = sh.TableEntry("MyIngress.selector_table")
    entry.match["hdr.ethernet.kind"] = "0x0800"
    action = sh.Action("MyIngress.forward")
    action["port"] = "1"
    entry.oneshot.add(action, weight=2)
    entry.insert()
    (read,) = list(sh.TableEntry("MyIngress.selector_table").read())
    assert len(read.oneshot.actions) == 1, read
    entry.delete()


def digests():
    digest = sh.DigestEntry("seen_t")
    digest.max_list_size = 5
    digest.insert()
    (read,) = list(sh.DigestEntry("seen_t").read())
    assert read.max_list_size == 5, read
    digest.delete()


def packets():
    """The program sends the controller's packets with port 510 back to it."""
    incoming = sh.PacketIn()
    out = sh.PacketOut(payload=bytes(range(40)))
    out.metadata["egress_port"] = "510"
    out.metadata["pad"] = "0"
    out.send()
    found = []
    while not found:
        found = list(incoming.sniff(timeout=1))
    assert found[0].packet.payload == bytes(range(2, 40)), found


def main():
    address, p4info, config = sys.argv[1:]
    sh.setup(1, address, (0, 1), config=sh.FwdPipeConfig(p4info, config), verbose=False)
    try:
        for name, step in steps():
            step()
            print("ok", name, flush=True)
    finally:
        sh.teardown()


if __name__ == "__main__":
    main()
