"""The reference: pages made from the code, each time that the site is built.

python_pages.py     what `rangecast`, its public modules, `rangecast.spark` and `rangecast.client` offer
command_pages.py    every command and option, and the environment variables
broker_pages.py     the broker's requests and everybody's metrics
licence_pages.py    the packages that are installed with it, and their licences
"""

from __future__ import annotations

from pathlib import Path

import broker_pages
import command_pages
import licence_pages
import python_pages


def pages() -> dict[str, str]:
    """The text of each page, by its file's name."""
    makers = (python_pages, command_pages, broker_pages, licence_pages)
    return {name: text for maker in makers for name, text in maker.pages().items()}


def write(folder: Path) -> None:
    """Write all pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text)
