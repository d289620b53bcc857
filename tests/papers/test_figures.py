"""Single figures of the experiments: what they take, what they leave, and that constants come back."""

import pytest

import rangecast as rc
from rangecast.papers import EXPERIMENTS, ExperimentReport
from rangecast.papers.figures import draw_figure, figures_of, options_of_figure
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
    assert report.claims == []


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


def test_what_a_figure_does_not_have_is_refused(tmp_path):
    with pytest.raises(rc.OptionError, match="'vcr' has no figure '5'; there are 6, 7, 8, 9"):
        draw_figure(report_of("vcr", tmp_path), "5", None, {})
    with pytest.raises(rc.OptionError, match="'batch' has no figure '5'; it has none that stands alone"):
        draw_figure(report_of("batch", tmp_path), "5", None, {})
    with pytest.raises(rc.OptionError, match="figure 7 of 'covering' takes shortest, seeds, got 'n'"):
        draw_figure(report_of("covering", tmp_path), "7", 100, {})
    for name in EXPERIMENTS:
        for draw in figures_of(name).values():
            assert options_of_figure(draw)
