"""The join token in operators' hands and in a data directory (mode 0600).

The key of a host alone has the same form, in a file of its own; it is not valid for joining.
"""

from __future__ import annotations

from pathlib import Path

from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.api.one_time_token import ONE_TIME
from treecast.middleware.api.private_file import write_private
from treecast.middleware.model.errors import TreecastError

from .listeners import StartError

FILE = "join-token"
CONTROL_FILE = "control-token"


def given_token(text: str) -> JoinToken:
    """Returns the token of `--join-token TOKEN|@FILE`. Raises StartError."""
    if not text.startswith("@"):
        return _parsed(text, "--join-token")
    path = Path(text[1:])
    try:
        return _parsed(path.read_text(encoding="utf-8"), f"--join-token {text}")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise StartError(f"--join-token {text}: the file cannot be read: {reason}") from error


def is_one_time(text: str) -> bool:
    """Whether `--join-token` is, or names a file with, a token of a secured cluster, another kind."""
    return text_of(text).startswith(ONE_TIME)


def text_of(given: str) -> str:
    """Returns the text of `--join-token TOKEN|@FILE`; empty if the file cannot be read, which `given_token`
    says.
    """
    if not given.startswith("@"):
        return given.strip()
    try:
        return Path(given[1:]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def kept_token(data: Path, file: str = FILE) -> JoinToken | None:
    """Returns the token in a data directory; None if there is none. Raises StartError."""
    path = data / file
    try:
        return _parsed(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise StartError(f"{path} cannot be read: {reason}") from error


def keep_token(data: Path, token: JoinToken, file: str = FILE) -> None:
    """Writes the token durably, readable by its owner only. Raises StartError."""
    path = data / file
    try:
        write_private(path, token.format().encode() + b"\n")
    except OSError as error:
        raise StartError(f"{path} cannot be written: {error.strerror}") from error


def _parsed(text: str, where: str) -> JoinToken:
    try:
        return JoinToken.parse(text)
    except TreecastError as error:
        raise StartError(f"{where}: {error}") from error
