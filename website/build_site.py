"""Build the site: `make docs`, or `python website/build_site.py`.

    docs/, README's companions, examples/     --stage-->     build/website/pages
    the code                                  --reference--> build/website/pages/reference
    build/website/pages                       --zensical-->  build/website/site

Zensical finds links to pages and headings that are not there. What it does not look at is checked here:
that each page stands in the navigation once, that files and pictures which pages name are there, and that a
browser would load nothing from another host.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import reference

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# Pages beside docs/ that are part of the site.
BESIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LINK = re.compile(r"(\]\()([^)\s#]+)")
# What a browser loads by itself; a link that a reader follows may lead anywhere.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


def stage(pages: Path) -> None:
    """Copy what people wrote, with links that leave docs/ led to the copy beside it."""
    shutil.copytree(ROOT / "docs", pages)
    shutil.copytree(ROOT / "examples", pages / "examples")
    shutil.copy(HERE / "site.css", pages)
    for name in BESIDE:
        shutil.copy(ROOT / name, pages)
    for page in pages.rglob("*.md"):
        inside = page.relative_to(pages)
        home = ROOT if inside.name in BESIDE or inside.parts[0] == "examples" else ROOT / "docs"
        page.write_text(LINK.sub(lambda found: led(found, home / inside), page.read_text()))  # noqa: B023


def led(found: re.Match[str], page: Path) -> str:
    """A link of a page as it must be in the copy, where docs/ is the root."""
    target = found[2]
    if ":" in target:
        return found[0]
    place = Path(os.path.normpath(page.parent / target))

    def staged(path: Path) -> Path:
        docs = ROOT / "docs"
        return path.relative_to(docs) if path.is_relative_to(docs) else path.relative_to(ROOT)

    if place == ROOT / "README.md":  # the home of the site says the same
        place = ROOT / "docs" / "README.md"
    return found[1] + os.path.relpath(staged(place), staged(page).parent)


def listed(nav: list[Any]) -> list[str]:
    """The pages of a navigation, in its order."""
    names: list[str] = []
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            names += listed(value) if isinstance(value, list) else [value]
    return names


def faults_of_navigation(names: list[str], there: set[str]) -> list[str]:
    """What is wrong between the navigation and the pages."""
    counts = Counter(names)
    return (
        [f"{name} is not in nav of website/zensical.toml" for name in sorted(there - set(names))]
        + [
            f"nav of website/zensical.toml has {name}, which is not a page"
            for name in sorted(set(names) - there)
        ]
        + [f"nav of website/zensical.toml has {name} twice" for name, n in counts.items() if n > 1]
    )


class _Targets(HTMLParser):
    """What a page of the site points at, and what a browser would load for it."""

    def __init__(self) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and given.get("href"):
            self.links.add(str(given["href"]))
        key = LOADED.get(tag)
        if key and given.get(key) and given.get("rel") not in {"canonical", "prev", "next"}:
            self.loaded.add(str(given[key]))


def faults_of_site(site: Path) -> list[str]:
    """Links of the built pages to files that are not there, and what would be loaded from elsewhere."""
    faults = []
    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html":  # its links begin at the root of wherever the site is put
            continue
        targets = _Targets()
        targets.feed(page.read_text())
        name = page.relative_to(site)
        elsewhere = {target for target in targets.loaded if re.match(r"(https?:)?//", target)}
        faults += [f"{name} loads {target}" for target in sorted(elsewhere)]
        for target in sorted(targets.links | targets.loaded - elsewhere):
            path = target.split("#")[0].split("?")[0]
            if path and not re.match(r"[a-z]+:|//", target) and not (page.parent / path).exists():
                faults.append(f"{name} points at {target}, which is not there")
    return faults


def build(folder: Path) -> list[str]:
    """Build the site below a folder; returns what is wrong with it."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    stage(pages)
    reference.write(pages / "reference")
    settings = (HERE / "zensical.toml").read_text()
    (folder / "zensical.toml").write_text(settings)
    names = listed(tomllib.loads(settings)["project"]["nav"])
    there = {str(page.relative_to(pages)) for page in pages.rglob("*.md")}
    faults = faults_of_navigation(names, there)
    if faults:
        return faults
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    ran = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"}, check=False
    )
    if ran.returncode:
        return [(ran.stdout + ran.stderr).partition("Traceback")[0]]
    return faults_of_site(folder / "site")


def main() -> None:
    """Build the site, say where it is, or what is wrong."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "website"
    faults = build(folder)
    if faults:
        sys.exit("\n".join(faults))
    site = os.path.relpath(folder / "site")
    print(f"the site is in {site}; to read it with its search: python3 -m http.server --directory {site}")


if __name__ == "__main__":
    main()
