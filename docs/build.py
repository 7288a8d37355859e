"""Builds the documentation as a site, without network, and checks it: ``python docs/build.py``.

The pages of ``docs/pages`` are copied to ``build/docs``. ``docs/filled.py`` and ``docs/reference.py`` add the parts
that are made from the code. Zensical makes the site, and every link, anchor and picture of the site is followed. A
warning is an error.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

from filled import fill  # noqa: E402
from links import broken_links  # noqa: E402
from pictures import house_picture, label_picture  # noqa: E402
from reference import REFERENCE, reference_page  # noqa: E402


def write_pages(folder: Path) -> None:
    """Write the source of the site to ``folder``: the completed pages, the reference and the pictures."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "pages", folder / "pages")
    shutil.copy(ROOT / "docs" / "mkdocs.yml", folder)
    for page in folder.rglob("*.md"):
        page.write_text(fill(page.read_text(encoding="utf-8"), page.relative_to(folder / "pages")), encoding="utf-8")
    (folder / "pages" / "api").mkdir()
    for name, modules in REFERENCE.items():
        (folder / "pages" / "api" / f"{name}.md").write_text(reference_page(*modules), encoding="utf-8")
    for name, picture in {"label": label_picture("G-cg-q-12o"), "house": house_picture()}.items():
        (folder / "pages" / "pictures" / f"{name}.svg").write_text(picture, encoding="utf-8")


def unlisted_pages(folder: Path) -> list[str]:
    """Pages that the navigation of ``mkdocs.yml`` does not list, and listed pages that do not exist."""
    listed = set(re.findall(r"[\w/-]+\.md", (folder / "mkdocs.yml").read_text(encoding="utf-8")))
    there = {page.relative_to(folder / "pages").as_posix() for page in (folder / "pages").rglob("*.md")}
    return [f"{page}: not in the navigation" for page in sorted(there - listed)] + [
        f"{page}: in the navigation and not there" for page in sorted(listed - there)
    ]


def build(folder: Path) -> list[str]:
    """Build the site in ``folder / "site"``, and return everything that is wrong with it."""
    write_pages(folder)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "-f", "mkdocs.yml"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    if ended.returncode or "warning" in (ended.stdout + ended.stderr).lower():
        return [(ended.stdout + ended.stderr).strip()]
    return unlisted_pages(folder) + broken_links(folder / "site")


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "build" / "docs"
    if problems := build(folder):
        raise SystemExit("\n".join(problems))
    print(f"{folder / 'site' / 'index.html'}: {len([*(folder / 'site').rglob('*.html')])} pages")
