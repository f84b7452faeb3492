"""Virtual trees: partial trees that switches store, combined by the labels in packets.

| module | content |
| --- | --- |
| `rules` | the trees of a network under a limit of rules per switch |
| `stacks` | hop, tree and stop labels in their order, and the switches' behaviour |
| `reference` | Algorithm 5.1 as printed, and with its stops mended |
| `encoder`, `growth` | ours: gain-greedy with trees grown to avoid stops; `exact` for small cases |
| `thorough` | the best of several, for callers with more time |
| `learning` | trees from observed notifications |
| `strategies` | the choice of trees to install |
| `update` | from one rule base to another, make before break |

Source: the thesis, chapters 5 and 6.
"""
