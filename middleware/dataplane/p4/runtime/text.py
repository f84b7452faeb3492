"""What log_msg writes."""

from __future__ import annotations


def format_log(text: str, numbers: list[int]) -> str:
    """Each {} is a number, as far as there are numbers."""
    parts = text.split("{}")
    shown = [str(number) for number in numbers[: len(parts) - 1]]
    shown += ["{}"] * (len(parts) - 1 - len(shown))
    return "".join(a + b for a, b in zip(parts, [*shown, ""], strict=True))
