"""The load of `python -m bench stock`: Java programs on the stock client libraries of each protocol."""
