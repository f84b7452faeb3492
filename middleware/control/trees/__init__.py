"""Switches that follow stacks of labels, and the trees that they store.

| module | content |
| --- | --- |
| `states` | the state of a switch in each scheme, as a value: entries, groups, clone sessions |
| `wires` | numbers of links that last while the description changes |
| `manager` | brings the switches of a network from one rule base to the next, make before break |
| `store` | what a manager must not forget, in a file |
| `probing` | probes of links, led by labels |
| `controller` | looks at links, switches, publishers and the file, and has the manager follow |
| `adapting` | learns better trees from what publishers send, during operation |
| `advice`, `advised` | whether a pipeline's advice is applied; a manager that follows it |

The programs are in p4/, one per scheme; names in `states` are theirs.
"""
