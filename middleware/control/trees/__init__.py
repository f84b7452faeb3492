"""Switches that follow stacks of labels, and the trees that they store.

| module | what it is |
| --- | --- |
| `states` | what a switch of each scheme holds, as a value: entries, groups, clone sessions |
| `manager` | brings the switches of a network from one rule base to the next, make before break |
| `adapting` | from what publishers send to better trees, while all runs |

The programs are in p4/, one a scheme; names in `states` are theirs.
"""
