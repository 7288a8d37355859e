"""Links, anchors and files of a built site."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """Links, sources and anchors of one page."""

    def __init__(self, text: str):
        super().__init__()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and values.get("href"):
            self.targets.append(values["href"])
        is_loaded = tag in ("img", "script", "iframe") or (
            tag == "link" and values.get("rel") in ("stylesheet", "icon")
        )
        if is_loaded and (target := values.get("src") or values.get("href")):
            self.loaded.append(target)


def broken_links(site: Path) -> list[str]:
    """Broken links, anchors and files of the pages below ``site``, and what these load from the network."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        name = path.relative_to(site)
        broken += [f"{name}: loads {target} from the network" for target in page.loaded if urlsplit(target).netloc]
        for target in page.targets + page.loaded:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            end = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            end = end / "index.html" if end.is_dir() else end
            if not end.exists():
                broken.append(f"{name}: no file for {target}")
            elif parts.fragment and end in pages and unquote(parts.fragment) not in pages[end].anchors:
                broken.append(f"{name}: no anchor for {target}")
    return broken
