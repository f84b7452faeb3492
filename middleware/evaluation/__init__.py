"""The results that `treecast eval` reproduces: figures and tables of the papers, with their statements as
checks.

| module | content |
| --- | --- |
| `figure`, `runner` | a figure as tasks, spread over processes, deterministic by seed |
| `report`, `plots` | table, JSON and plot |
| `topologies` | networks by name, from a folder of files or topohub |
| `population` | publishers and subscribers, dense regions, migration |
| `stare`, `snaps` | the measurements of the STARE and the SNAPS paper |
| `thesis` | the figures of the thesis' chapters 3 to 6 |
"""
