"""The site is built without a fault, and its reference leaves nothing public out."""

import importlib
import importlib.util
import inspect
import re
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

FOLDER = Path(__file__).resolve().parents[2] / "website"


@pytest.fixture(scope="module")
def website():
    """The modules of website/, which import each other by name."""
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module("build_site")
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def pages(website):
    return website.reference.pages()


def headings(text: str) -> set[str]:
    return set(re.findall(r"^#+ (.+)$", text, re.MULTILINE))


def test_the_site_is_built_without_a_fault(website, tmp_path):
    pytest.importorskip("zensical", reason="the extra docs is not installed; `make .venv` installs it")
    assert website.build(tmp_path / "website") == []
    found = (tmp_path / "website" / "site" / "search.json").read_text()
    assert "Prometheus" in found  # the pages that are generated are searched too


def test_every_public_name_of_python_has_its_place(website, pages):
    for name, page in website.reference.python_pages.PAGES.items():
        module = importlib.import_module(page.module)
        shown = headings(pages[name]) | headings(pages["errors.md"])
        wanted = {f"{page.short}.{public}" for public in module.__all__ if not public.startswith("__")}
        assert wanted <= shown, f"{name} leaves out {sorted(wanted - shown)}"
        for public in module.__all__:
            thing = getattr(module, public)
            if inspect.isclass(thing) and not issubclass(thing, BaseException):
                places = {base.__name__ for base in thing.__mro__}
                for member in website.reference.python_pages.members_of(thing):
                    assert shown & {f"{place}.{member}" for place in places}, f"{name}: {public}.{member}"


def test_every_command_option_and_variable_has_its_place(website, pages):
    commands = website.reference.command_pages
    for path, command in commands.commands():
        assert f"rangecast {' '.join(path)}" in headings(pages["commands.md"])
        section = pages["commands.md"].partition(f"# rangecast {' '.join(path)}\n")[2].partition("\n#")[0]
        for option in command.params:
            names = option.opts if option.param_type_name == "option" else [option.name.upper()]
            left_out = option.name in {"help", "install_completion", "show_completion"}
            assert left_out or any(name in section for name in names), (path, option.name)
    assert commands.read_variables() <= set(commands.VARIABLES)
    assert all(f"`{name}`" in pages["configuration.md"] for name in commands.VARIABLES)


def test_every_request_error_limit_and_metric_has_its_place(pages):
    from rangecast import errors
    from rangecast.broker.access import SpaceLimits
    from rangecast.broker.app import ROUTES
    from rangecast.broker.metrics import Metrics
    from rangecast.kafka.worker import _COUNTERS

    assert {f"{method} {path}" for method, path, _ in ROUTES} <= headings(pages["http.md"])
    kinds = [name for name, thing in vars(errors).items() if inspect.isclass(thing)]
    assert {f"rc.{name}" for name in kinds} <= headings(pages["errors.md"])
    assert all(f"`{name}`" in pages["configuration.md"] for name in SpaceLimits.__dataclass_fields__)
    assert all(f"`{family.name}" in pages["metrics.md"] for family in Metrics().registry.collect())
    assert all(f"rangecast_kafka_{name}_total" in pages["metrics.md"] for name in _COUNTERS)


def test_every_dependency_has_a_licence(pages):
    project = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = project["dependencies"] + [
        line for name in ("spark", "serve", "kafka", "buckets", "delta") for line in extras[name]
    ]
    names = {re.match(r"[\w-]+", line)[0] for line in wanted}
    rows = dict(re.findall(r"^\| ([\w-]+) \| [\d.]+ \| (.+) \|$", pages["licences.md"], re.MULTILINE))
    assert names <= set(rows)
    assert "not stated" not in rows.values()


def test_faults_are_seen(website, tmp_path):
    assert website.listed(["a.md", {"x": "b.md"}, {"y": ["c.md", {"z": "a.md"}]}]) == [
        "a.md",
        "b.md",
        "c.md",
        "a.md",
    ]
    assert website.faults_of_navigation(["a.md", "b.md", "a.md"], {"a.md", "c.md"}) == [
        "c.md is not in nav of website/zensical.toml",
        "nav of website/zensical.toml has b.md, which is not a page",
        "nav of website/zensical.toml has a.md twice",
    ]
    (tmp_path / "a.html").write_text(
        '<a href="gone.png">x</a><a href="#here">y</a><a href="https://example.org/">z</a>'
        '<script src="https://example.org/x.js"></script><img src="a.html">'
    )
    assert website.faults_of_site(tmp_path) == [
        "a.html loads https://example.org/x.js",
        "a.html points at gone.png, which is not there",
    ]


def test_a_signature_and_a_docstring_become_markdown(website):
    python_pages = website.reference.python_pages

    def add(first: "int", *, second: "list[str] | None" = None) -> "str":
        """One sentence with a <tag>.

        >>> add(1)
        '1'

        More.
        """

    assert (
        python_pages.signature_of(add, "x.add")
        == "x.add(first: int, *, second: list[str] | None = None) -> str"
    )
    assert python_pages.prose(add.__doc__) == (
        "One sentence with a &lt;tag>.\n\n```pycon\n>>> add(1)\n'1'\n```\n\nMore."
    )
