"""The faces: client protocols as applications see them."""
