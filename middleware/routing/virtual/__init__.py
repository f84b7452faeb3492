"""Virtual trees: partial trees that switches store, stitched together by what packets carry.

| module | what it is |
| --- | --- |
| `rules` | the trees of a network under a limit of rules per switch |
| `stacks` | hop, tree and stop labels in their order, and what switches do with them |
| `reference` | Algorithm 5.1 as printed, and with its stops mended |
| `encoder`, `growth` | ours: gain-greedy with trees grown to avoid stops; `exact` for small cases |
| `thorough` | the best of several, for who has more time |
| `learning` | trees from observed notifications |
| `strategies` | which trees to install |
| `update` | from one rule base to another, make before break |

Source: the thesis, chapters 5 and 6.
"""
