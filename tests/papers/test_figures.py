"""Single figures of the experiments: what they take, what they leave, and that constants come back."""

import pytest

import rangecast as rc
from rangecast.papers import EXPERIMENTS, ExperimentReport
from rangecast.papers.figures import draw_figure, figures_of, options_of_figure
from rangecast.papers.ubtree import experiment as ubtree
from rangecast.papers.vci import experiment as vci
from rangecast.papers.vcr import experiment as vcr

pytestmark = pytest.mark.without_kernels
pytest.importorskip("matplotlib")


def report_of(name, folder):
    return ExperimentReport(name, folder, True)


def test_a_figure_is_drawn_alone(tmp_path):
    report = report_of("covering", tmp_path)
    draw_figure(report, "8", None, {"shortest": 2, "seeds": 2})
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["covering-figure-8.csv", "covering-figure-8.png"]
    assert report.weighed == []


def test_options_replace_the_constants_and_give_them_back(tmp_path, monkeypatch):
    seen = {}

    def by_number(report, r, sizes, schemes):
        seen.update(r=r, sizes=sizes, L=vci.LENGTH, own=vci.SCHEMES["LCI-BV"][1]["L"], schemes=schemes)
        raise RuntimeError("enough")

    monkeypatch.setattr(vci, "by_number", by_number)
    with pytest.raises(RuntimeError, match="enough"):
        draw_figure(report_of("vci", tmp_path), "6b", 2_000, {"L": 32})
    assert seen == {"r": 250_000, "sizes": [1_000, 2_000], "L": 32, "own": 32, "schemes": vci.WIDE}
    assert (vci.LENGTH, vci.SCHEMES["LCI-BV"][1]["L"]) == (128, 128)
    monkeypatch.setattr(vcr, "figure_6", lambda _, sizes: seen.update(sizes=sizes, paper={**vcr.PAPER}))
    draw_figure(report_of("vcr", tmp_path), "6", 300, {"Lx": 4})
    assert (seen["sizes"], seen["paper"]["Lx"], seen["paper"]["Ly"]) == ([150, 300], 4, 8)
    assert vcr.PAPER["Lx"] == 16


@pytest.mark.parametrize("figure", ["4a", "4b", "4c"])
def test_figures_of_batch_search_alone(tmp_path, figure):
    report = report_of("batch", tmp_path)
    draw_figure(report, figure, 40, {"batch": 2, "loops": 1})
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        f"batch-{figure}.csv",
        f"batch-{figure}.png",
    ]


@pytest.mark.parametrize(("figure", "values"), [("6a", [100, 200]), ("6f", [2])])
def test_figures_of_the_ub_tree_alone(tmp_path, monkeypatch, figure, values):
    seen = []
    monkeypatch.setattr(ubtree, "sweep", lambda report, *words: seen.append(words))
    options = {"events": 2} | ({"values": 2} if figure == "6f" else {})
    draw_figure(report_of("ubtree", tmp_path), figure, 200, options)
    (name, _, chosen, draw) = seen[0]
    assert (name, chosen) == (f"figure{figure}", values)
    drawn = draw(chosen[-1])
    assert (len(drawn.subscriptions()), len(drawn.events())) == (200, 2)


def test_what_a_figure_does_not_have_is_refused(tmp_path):
    with pytest.raises(rc.OptionError, match="'vcr' has no figure '5'; there are 6, 7, 8, 9"):
        draw_figure(report_of("vcr", tmp_path), "5", None, {})
    with pytest.raises(rc.OptionError, match="'batch' has no figure '5'; there are 4a, 4b, 4c"):
        draw_figure(report_of("batch", tmp_path), "5", None, {})
    with pytest.raises(rc.OptionError, match="'seeds' has no figure '1'; it has none that stands alone"):
        draw_figure(report_of("seeds", tmp_path), "1", None, {})
    with pytest.raises(rc.OptionError, match="figure 7 of 'covering' takes shortest, seeds, got 'n'"):
        draw_figure(report_of("covering", tmp_path), "7", 100, {})
    for name in EXPERIMENTS:
        for draw in figures_of(name).values():
            assert options_of_figure(draw)
