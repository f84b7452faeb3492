"""The text of log_msg."""

from __future__ import annotations


def format_log(text: str, numbers: list[int]) -> str:
    """Replaces each {} by a number, as long as there are numbers."""
    parts = text.split("{}")
    shown = [str(number) for number in numbers[: len(parts) - 1]]
    shown += ["{}"] * (len(parts) - 1 - len(shown))
    return "".join(a + b for a, b in zip(parts, [*shown, ""], strict=True))
