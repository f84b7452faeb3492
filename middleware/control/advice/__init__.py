"""Advice of the pipeline, for whoever manages a network: the tree manager, the network controller of SRv6.

| module | what it is |
| --- | --- |
| `rules` | whether advice is applied |
| `following` | reads advice, has it applied, and writes down what became of it |
| `place` | the table `[advice]` of a description; the file of what outlives the manager |
"""
