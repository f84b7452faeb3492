"""Switches that follow stacks of labels, and the trees that they store.

| module | content |
| --- | --- |
| `states` | the state of a switch in each scheme, as a value: entries, groups, clone sessions |
| `manager` | brings the switches of a network from one rule base to the next, make before break |
| `adapting` | learns better trees from what publishers send, during operation |

The programs are in p4/, one per scheme; names in `states` are theirs.
"""
