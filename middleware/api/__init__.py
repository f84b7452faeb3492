"""Access to a daemon: generated code, thin clients, discovery."""
