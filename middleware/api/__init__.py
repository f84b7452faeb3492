"""How to find and talk to a daemon: generated code, thin clients, discovery."""
