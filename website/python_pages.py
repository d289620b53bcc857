"""Pages of the Python interface, read from the objects themselves.

A page is a module's docstring, then each of its public names: a signature, the docstring, and for a class its
public members. Names of the package are loaded late, so a reader of source files would not find them.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
from typing import Any, ForwardRef, NamedTuple


class _ModulePage(NamedTuple):
    title: str
    module: str
    short: str
    """The name that the pages give the module, before the names in it."""


PAGES = {
    "python.md": _ModulePage("The library: rangecast", "rangecast", "rc"),
    "spark.md": _ModulePage("On Spark: rangecast.spark", "rangecast.spark", "rs"),
    "client.md": _ModulePage("Clients of a broker: rangecast.client", "rangecast.client", "client"),
    "kafka.md": _ModulePage("Topics of Kafka: rangecast.kafka", "rangecast.kafka", "kafka"),
    "delta.md": _ModulePage("Tables of Delta Lake: rangecast.delta", "rangecast.delta", "delta"),
    "language.md": _ModulePage("Conditions: rangecast.language", "rangecast.language", "language"),
    "covering.md": _ModulePage("Covering: rangecast.covering", "rangecast.covering", "covering"),
    "workloads.md": _ModulePage("Made-up data: rangecast.workloads", "rangecast.workloads", "workloads"),
}


# a < outside backticks, which would begin a tag
TAG = re.compile(r"((?:^|`[^`]*`)[^`<]*)<(?=[\w/])")


class _Plain(str):
    """An annotation that is shown as it was written, without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def signature_of(thing: Any, name: str) -> str:
    """The call of a function or class, on several lines where a single line would be long."""
    try:
        found = inspect.signature(thing)
    except ValueError:  # an exception that takes what Exception takes
        return f"{name}(message)"

    def plain(annotation: Any) -> Any:
        if isinstance(annotation, ForwardRef):  # a field of a NamedTuple
            annotation = annotation.__forward_arg__
        return _Plain(annotation.strip("'\"")) if isinstance(annotation, str) else annotation

    def default(value: Any) -> Any:
        named = isinstance(value, type) or inspect.isbuiltin(value)
        return _Plain(value.__name__) if named and value is not inspect.Parameter.empty else value

    parameters = [
        parameter.replace(annotation=plain(parameter.annotation), default=default(parameter.default))
        for parameter in found.parameters.values()
        if parameter.name not in {"self", "cls"}
    ]
    returns = plain(found.return_annotation)
    shown = found.replace(parameters=parameters, return_annotation=returns)
    line = f"{name}{shown}"
    # what differs from process to process, and the folders of the machine that built the page
    line = re.sub(r"<([\w.]+) object at 0x[0-9a-f]+>", r"<\1>", line)
    if len(line) <= 90:
        return line
    result = "" if returns is inspect.Signature.empty else f" -> {inspect.formatannotation(returns)}"
    rows: list[str] = []
    keyword = False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword:
            rows.append("*")
        keyword = keyword or parameter.kind in {parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL}
        rows.append(str(parameter))
    return f"{name}(\n" + "".join(f"    {row},\n" for row in rows) + f"){result}"


def prose(text: str) -> str:
    """A docstring as Markdown: its examples are fenced, the rest stands as it is."""
    out: list[str] = []
    fenced = False
    for line in inspect.cleandoc(text).splitlines():
        begins = line.startswith(">>>")
        if begins and not fenced:
            out += ["", "```pycon"]
            fenced = True
        elif fenced and not line:
            out.append("```")
            fenced = False
        out.append(line if fenced or line.startswith("    ") else TAG.sub(r"\1&lt;", line))
    return re.sub(r"\n{3,}", "\n\n", "\n".join([*out, "```"] if fenced else out)).strip()


def fields_of(kind: type) -> list[tuple[str, str, str]]:
    """Name, type and text of a dataclass's fields; the text is the string that follows a field."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    said: dict[str, str] = {}
    for node, after in zip(body.body, [*body.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = (
                after.value.value
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                else ""
            )
            said[node.target.id] = " ".join(str(text).split())
    return [
        (
            field.name,
            field.type if isinstance(field.type, str) else field.type.__name__,
            said.get(field.name, ""),
        )
        for field in dataclasses.fields(kind)
        if not field.name.startswith("_")
    ]


def members_of(kind: type, elsewhere: frozenset[type] = frozenset()) -> dict[str, Any]:
    """The public members of a class that rangecast wrote, bases first, each in the order of its source.

    Those of bases that have a place `elsewhere` on the page are left out.
    """
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] == "rangecast" and base not in elsewhere - {kind}:
            found |= {name: thing for name, thing in vars(base).items() if not name.startswith("_")}
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    return {
        name: thing
        for name, thing in found.items()
        if name not in fields
        and (inspect.isfunction(thing) or isinstance(thing, classmethod | staticmethod | property))
    }


def block(code: str) -> str:
    """Code of Python, fenced so that it is shown and not taken for an example."""
    return f"```py\n{code}\n```"


def class_text(kind: type, name: str, elsewhere: frozenset[type]) -> list[str]:
    """A class: its call, its docstring, its fields and its members."""
    parts = [block(signature_of(kind, name).removesuffix(" -> None")), prose(vars(kind).get("__doc__") or "")]
    # the call has the names and types of fields already
    if dataclasses.is_dataclass(kind) and any(text for *_, text in fields_of(kind)):
        rows = [
            f"| `{field}` | `{kind_.replace('|', chr(92) + '|')}` | {text} |"
            for field, kind_, text in fields_of(kind)
        ]
        parts.append("\n".join(["| field | type | meaning |", "|---|---|---|", *rows]))
    bases = [base.__name__ for base in kind.__mro__[1:] if base in elsewhere]
    if bases:
        short = name.partition(".")[0]
        parts.append(
            "It has the members of " + ", ".join(f"`{short}.{base}`" for base in bases) + " as well."
        )
    inherited = {member for base in kind.__mro__[1:] if base in elsewhere for member in vars(base)}
    for member, thing in members_of(kind, elsewhere).items():
        # one that does the same for this class in its own way has no words of its own
        if member in inherited and not thing.__doc__:
            continue
        parts.append(f"### {name.rpartition('.')[2]}.{member}")
        if isinstance(thing, property):
            parts += ["*property*", prose(thing.__doc__ or "")]
            continue
        function = thing.__func__ if isinstance(thing, classmethod | staticmethod) else thing
        parts += [block(signature_of(function, member)), prose(function.__doc__ or "")]
    return parts


def module_text(module: Any) -> str:
    """A module's docstring without its list of files, which is for those who work on it."""
    parts = inspect.cleandoc(module.__doc__ or "").split("\n\n")
    return prose(
        "\n\n".join(part for part in parts if not re.search(r"^ *\w[\w/]*\.py  ", part, re.MULTILINE))
    )


def entry(thing: Any, name: str, elsewhere: frozenset[type]) -> list[str]:
    """One public name."""
    parts = [f"## {name}"]
    if inspect.isclass(thing):
        parts += class_text(thing, name, elsewhere)
    elif inspect.isfunction(thing):
        parts += [block(signature_of(thing, name)), prose(thing.__doc__ or "")]
    elif inspect.ismodule(thing):
        parts.append(module_text(thing))
    else:
        parts.append(block(f"{name} = {thing!r}"))
    return parts


def module_page(page: _ModulePage) -> str:
    """The page of a module."""
    module = importlib.import_module(page.module)
    below = page.module.partition(".")[2]
    imported = f"from rangecast import {below}" if below else "import rangecast"
    if page.short != below:
        imported += f" as {page.short}"
    parts = [f"# {page.title}", block(imported), module_text(module)]
    names = [name for name in module.__all__ if not name.startswith("__")]
    errors = [name for name in names if is_error(getattr(module, name))]
    classes = frozenset(thing for name in names if inspect.isclass(thing := getattr(module, name)))
    for name in names:
        if page.short != "rc" or name not in errors:
            parts += entry(getattr(module, name), f"{page.short}.{name}", classes)
    if page.short == "rc":
        parts.append("The errors have [a page of their own](errors.md).")
    return "\n\n".join(part for part in parts if part) + "\n"


def is_error(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, BaseException)


def errors_page() -> str:
    """The tree of errors, and each of them."""
    errors = importlib.import_module("rangecast.errors")
    parts = ["# Errors and warnings", prose(errors.__doc__ or "")]
    found = {
        name: thing for name, thing in vars(errors).items() if is_error(thing) and not name.startswith("_")
    }
    for name, thing in found.items():
        bases = ", ".join(f"`{base.__name__}`" for base in thing.__bases__)
        parts += [f"## rc.{name}", prose(vars(thing).get("__doc__") or ""), f"Bases: {bases}."]
    return "\n\n".join(parts) + "\n"


def pages() -> dict[str, str]:
    """The text of each page, by its file's name."""
    return {name: module_page(page) for name, page in PAGES.items()} | {"errors.md": errors_page()}
