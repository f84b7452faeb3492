"""Header stacks of the thesis' chapters 3 and 4, each a `forwarding.Forwarder` with an encoder.

| module | what its entries say | switches store |
| --- | --- | --- |
| `switch_port` | a switch and one of its ports; predictive or reactive pruning | nothing |
| `switch_bitmask` | a switch and a bit per port | nothing |
| `switch_group` | a switch and a multicast group, ports in one or more subsets | all sets of ports |
| `mixed` | a switch, which of the three, and its value | some groups |
| `hops` | the next node | their neighbours |
| `destinations` | a receiver | a way to every receiver |
| `stored` | a publisher's tree, and hops for whoever is not on it | trees |
| `split`, `tunnel` | several packets where one is too long; ways through switches that know nothing |

Trees are edges as bits, from a publisher's host to receivers' hosts; networks need hosts.
"""
