"""What `treecast eval` reproduces: figures and tables of the papers, each with its statements as checks.

| module | what it is |
| --- | --- |
| `figure`, `runner` | a figure as tasks, spread over processes, deterministic by seed |
| `report`, `plots` | table, JSON and plot |
| `topologies` | networks by name, from a folder of files or topohub |
| `population` | publishers and subscribers, dense regions, migration |
| `stare`, `snaps` | what the STARE and the SNAPS paper measure |
| `thesis` | the figures of the thesis' chapters 3 to 6 |
"""
