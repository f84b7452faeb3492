"""The way of one message from socket to socket over two hosts, file by file (`python -m tests.walk`)."""
