"""Hooks of the documentation site (mkdocs.yml): the README is its home, and links that leave docs/ go to the
repository.

Decisions and results are listed by their dates, so that a new page of theirs needs no line in mkdocs.yml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = "https://github.com/treecast/treecast/blob/main"

_LINK = re.compile(r"\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the dated pages to the navigation, and those that mkdocs.yml does not place."""
    if config.nav is not None:
        placed = set(_placed(config.nav))
        pages = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
        others = [
            page for page in pages if page not in placed and not page.startswith(("decisions/", "results/"))
        ]
        config.nav += [{"More": others}] if others else []
        config.nav += [{"Decisions": _dated("decisions")}, {"Results": _dated("results")}]
    return config


def _placed(nav: Any) -> Iterator[str]:
    """The pages that a navigation names, however deep."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from _placed(part)


def _dated(folder: str) -> list[str]:
    return sorted((f"{folder}/{path.name}" for path in (ROOT / "docs" / folder).glob("*.md")), reverse=True)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The README is the home page."""
    readme = (ROOT / "README.md").read_text("utf-8")
    files.append(File.generated(config, "index.md", content=_as_page(readme)))
    return files


def _as_page(readme: str) -> str:
    return readme.replace("](docs/", "](").replace("](decisions/)", "](architecture.md)")


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links to files outside docs/ lead to the repository."""
    here = (ROOT / "docs" / page.file.src_uri).parent

    def outward(match: re.Match[str]) -> str:
        target = match["target"]
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        there = (here / target).resolve()
        if there.is_relative_to(ROOT / "docs") and not there.is_dir():
            return match[0]
        return f"]({REPOSITORY}/{there.relative_to(ROOT)}{match['anchor'] or ''})"

    return _LINK.sub(outward, markdown)
