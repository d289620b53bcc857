"""Single figures of the experiments, with sizes and parameters of the reader's own.

`rangecast experiment NAME` runs an experiment as the paper has it and weighs its claims. A figure by itself
weighs nothing: it is for who asks how a curve goes on, or what another L does. Each function here is one, and
its keywords are what may be changed: `n` subscriptions (and half as many, since a line needs two points) and
its options.

The experiments' own parameters are constants of their modules, which a figure replaces while it runs.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from rangecast.errors import OptionError
from rangecast.papers.report import ExperimentReport
from rangecast.workloads import workload

DrawFigure = Callable[..., None]
_FIGURES: dict[str, dict[str, DrawFigure]] = {}


def figures_of(experiment: str) -> dict[str, DrawFigure]:
    """The figures of an experiment that can be drawn alone, by the names that the paper gives them."""
    return dict(sorted(_FIGURES.get(experiment, {}).items()))


def options_of_figure(draw: DrawFigure) -> dict[str, Any]:
    """What may be changed about a figure, and what it is by default."""
    return {name: p.default for name, p in inspect.signature(draw).parameters.items() if name != "report"}


def draw_figure(report: ExperimentReport, figure: str, n: int | None, options: Mapping[str, Any]) -> None:
    """Draw one figure of the report's experiment; OptionError for what it does not have."""
    known = figures_of(report.name)
    if figure not in known:
        there = f"there are {', '.join(known)}" if known else "it has none that stands alone"
        raise OptionError(f"experiment {report.name!r} has no figure {figure!r}; {there}")
    given = dict(options) | ({} if n is None else {"n": n})
    taken = options_of_figure(known[figure])
    for name in given:
        if name not in taken:
            raise OptionError(f"figure {figure} of {report.name!r} takes {', '.join(taken)}, got {name!r}")
    known[figure](report, **given)


def _figure(experiment: str, *names: str) -> Callable[[DrawFigure], DrawFigure]:
    def register(draw: DrawFigure) -> DrawFigure:
        for name in names:
            _FIGURES.setdefault(experiment, {})[name] = draw
        return draw

    return register


@contextmanager
def _replaced(experiment: str, **constants: Any) -> Iterator[ModuleType]:
    """The module of an experiment with other constants."""
    module = importlib.import_module(f"rangecast.papers.{experiment}.experiment")
    before = {name: getattr(module, name) for name in constants}
    for name, value in constants.items():
        setattr(module, name, value)
    try:
        yield module
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def _intervals(report: ExperimentReport, letter: str, r: int, n: int, L: int) -> None:
    own = importlib.import_module("rangecast.papers.vci.experiment")
    schemes = {
        name: (kind, options | ({"L": L} if "L" in options else {}))
        for name, (kind, options) in own.SCHEMES.items()
    }
    with _replaced("vci", LENGTH=L, SCHEMES=schemes) as module:
        names = module.WIDE if letter == "b" else tuple(schemes)
        curves = module.by_number(report, r, [n // 2, n], names)
        module.figures_by_number(report, letter, r, curves)


@_figure("vci", "6a", "7a")
def _vci_small(report: ExperimentReport, n: int = 64_000, L: int = 128) -> None:
    _intervals(report, "a", 5_000, n, L)


@_figure("vci", "6b", "7b")
def _vci_wide(report: ExperimentReport, n: int = 64_000, L: int = 128) -> None:
    _intervals(report, "b", 250_000, n, L)


def _rectangles(figure: str) -> DrawFigure:
    def draw(report: ExperimentReport, n: int = 64_000, Lx: int = 16, Ly: int = 8) -> None:
        own = importlib.import_module("rangecast.papers.vcr.experiment")
        with _replaced("vcr", PAPER={**own.PAPER, "Lx": Lx, "Ly": Ly}) as module:
            getattr(module, f"figure_{figure}")(report, [n // 2, n])

    return draw


for _name in ("6", "7", "8", "9"):
    _figure("vcr", _name)(_rectangles(_name))


@_figure("ubtree", "3a")
def _leaves(report: ExperimentReport, n: int = 100_000, events: int = 40) -> None:
    with _replaced("ubtree") as module:
        module.figure_3a(report, n, events)


def _swept(figure: str, parameter: str, argument: str, usual: tuple[Any, ...]) -> DrawFigure:
    def draw(report: ExperimentReport, n: int = 100_000, events: int = 40, values: Any = usual) -> None:
        chosen = list(values) if isinstance(values, tuple) else [values]
        with _replaced("ubtree") as module:
            module.sweep(
                report,
                f"figure{figure}",
                parameter,
                chosen,
                lambda x: workload("predicates-16", n, events, **{argument: x}),
            )

    return draw


for _name, _parameter, _argument, _values in (
    ("6b", "selectivity", "selectivity", (0.0, 0.001, 0.01, 0.1)),
    ("6c", "attributes", "attributes", (8, 16, 24, 32, 40)),
    ("6d", "share of equality predicates", "equality", (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
    ("6e", "share of half-intervals", "half", (0.0, 0.25, 0.5, 0.75, 1.0)),
):
    _figure("ubtree", _name)(_swept(_name, _parameter, _argument, _values))


@_figure("ubtree", "6a")
def _sizes(report: ExperimentReport, n: int = 100_000, events: int = 40) -> None:
    with _replaced("ubtree") as module:
        module.sweep(
            report,
            "figure6a",
            "subscriptions",
            [n // 2, n],
            lambda x: workload("predicates-16", x, events),
        )


@_figure("ubtree", "6f")
def _used(report: ExperimentReport, n: int = 100_000, events: int = 40, values: Any = (2, 8, 16)) -> None:
    with _replaced("ubtree") as module:
        module.sweep(
            report,
            "figure6f",
            "attributes that every subscription uses",
            list(values) if isinstance(values, tuple) else [values],
            lambda x: workload("predicates-16", n, events, always=x, often=0),
        )


def _batches(figure: str) -> DrawFigure:
    def draw(report: ExperimentReport, n: int = 100_000, batch: int = 10, loops: int = 16) -> None:
        own = importlib.import_module("rangecast.papers.rtree.experiment")
        extent = own.QUICK._replace(
            drawn=n, batches_a={batch: loops}, batches_b=(batch, 2 * batch, 4 * batch),
            events_b=loops * batch, loops_c=(max(1, loops // 4), loops), batch_c=batch,
        )  # fmt: skip
        tree = own.GrowingTree(extent)
        report.quick = True  # sizes of the reader's own tell nothing of a claim
        if figure == "4a":
            rows = [row for size in (n // 2, n) for row in own.measure_levels(extent, tree, size)]
            own._figure_a(report, extent, rows)
        elif figure == "4b":
            own._figure_b(report, n, own.measure_batches(extent, tree, n))
        else:
            own._figure_c(report, extent, own.measure_loops(extent, tree, n))

    return draw


for _name in ("4a", "4b", "4c"):
    _figure("batch", _name)(_batches(_name))


def _cubes(n_dims: int, shortest_side: int) -> DrawFigure:
    def draw(report: ExperimentReport, shortest: int = shortest_side, seeds: int = 3) -> None:
        with _replaced("covering") as module:
            module.count_figure(report, n_dims, shortest, range(seeds))

    return draw


for _name, _dims, _side in (("7", 4, 6), ("8", 6, 3), ("9", 8, 3)):
    _figure("covering", _name)(_cubes(_dims, _side))
