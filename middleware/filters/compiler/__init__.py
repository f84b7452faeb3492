"""The compiler of packet subscriptions: rules to a decision diagram, tables and a P4 program. Pure."""
