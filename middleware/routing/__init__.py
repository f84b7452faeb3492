"""Topologies, trees and their encodings in packets. Pure: random generators are arguments.

| package or module | content |
| --- | --- |
| `network`, `topologies` | networks as values, file formats, generators |
| `steiner`, `rooted` | trees that span receivers; a tree seen from its publisher |
| `schemes` | header stacks of the thesis' chapters 3 and 4, each with the switches' behaviour |
| `virtual` | virtual trees: rule bases, encoders, installation strategies, updates |
| `forwarding` | a packet through a network, switch by switch: deliveries, bytes, look-ups |

"The thesis" is Christian Wernecke, Content-based Publish/Subscribe with P4, Rostock 2025.
"""
