"""Header stacks of the thesis' chapters 3 and 4, each a `forwarding.Forwarder` with an encoder.

| module | content of an entry | switches store |
| --- | --- | --- |
| `switch_port` | a switch and one of its ports; predictive or reactive pruning | nothing |
| `switch_bitmask` | a switch and a bit per port | nothing |
| `switch_group` | a switch and a multicast group, ports in one or more subsets | all sets of ports |
| `mixed` | a switch, which of the three, and its value | some groups |
| `hops` | the next node | their neighbours |
| `destinations` | a receiver | a path to every receiver |
| `stored` | a publisher's tree, and hops for receivers outside it | trees |
| `split`, `tunnel` | several packets if one is too long; paths through switches without support | |

Trees are edges as bits, from a publisher's host to receivers' hosts; networks need hosts.
"""
