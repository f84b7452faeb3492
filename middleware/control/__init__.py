"""The coordinator: who is in the cluster, and who owns what. See docs/coordinator.md."""
