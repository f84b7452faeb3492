"""Topologies, trees and what packets say of them. Pure: generators that choose come as arguments.

| package or module | what it is |
| --- | --- |
| `network`, `topologies` | the value, files that hold one, generators |
| `steiner`, `rooted` | trees that span receivers; one of them seen from its publisher |
| `schemes` | header stacks of the thesis' chapters 3 and 4, each with what switches do with it |
| `virtual` | virtual trees: rule bases, encoders, installation strategies, updates |
| `forwarding` | a packet through a network, switch by switch: deliveries, bytes, look-ups |

"The thesis" is Christian Wernecke, Content-based Publish/Subscribe with P4, Rostock 2025.
"""
