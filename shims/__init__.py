"""The faces: the client protocols that applications speak."""
