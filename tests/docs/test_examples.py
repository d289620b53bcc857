"""The programs of examples/ run, print what they promise, and are small."""

import importlib.util
import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

FOLDER = Path(__file__).resolve().parents[2] / "examples"
PROGRAMS = ["price_alerts.py", "geofences.py", "log_routing.py", "broker_clients.py"]


def load(name):
    spec = importlib.util.spec_from_file_location(Path(name).stem, FOLDER / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def printed(tmp_path, monkeypatch, capsys):
    """Runs a function in an empty folder; gives the lines that it printed."""
    monkeypatch.chdir(tmp_path)

    def run(call):
        call()
        return capsys.readouterr().out.splitlines()

    return run


def test_programs_are_small_and_listed():
    for name in PROGRAMS:
        assert len((FOLDER / name).read_text().splitlines()) < 80, name
    cells = json.loads((FOLDER / "analysts.ipynb").read_text())["cells"]
    assert sum(len(cell["source"]) for cell in cells if cell["cell_type"] == "code") < 80
    page = (FOLDER / "README.md").read_text()
    there = {path.name for path in FOLDER.iterdir() if path.suffix in {".py", ".ipynb"}}
    assert there == {*PROGRAMS, "analysts.ipynb"}
    assert all(f"({name})" in page for name in there)


def test_price_alerts(printed):
    import asyncio

    lines = printed(lambda: asyncio.run(load("price_alerts.py").main()))
    changed = [k for k, line in enumerate(lines) if not line.startswith("  ")]
    assert len(changed) == 4
    before, after = lines[2 : changed[2]], lines[changed[3] + 1 :]
    assert any("ann (1)" in line for line in before)
    assert not any("cid (3)" in line for line in before)
    assert any("cid (3)" in line for line in after)
    assert not any("ann (1)" in line for line in after)


def test_broker_clients(printed):
    pytest.importorskip("uvicorn")
    assert printed(load("broker_clients.py").main) == [
        "published 1 to 3",
        "rejected row 3: 'price' is a float, got the string 'nine'",
        "ann is told of IBM at 119.5: ibm",
        "ann is told of IBM at 125.0: ibm, high",
        "bob is told of ACME at 9.0: cheap",
    ]


def test_the_notebook_of_analysts(printed):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    cells = json.loads((FOLDER / "analysts.ipynb").read_text())["cells"]
    names = {}

    def run():
        for cell in cells:
            if cell["cell_type"] == "code":
                assert not cell["outputs"], "notebooks are kept without their outputs"
                exec("".join(cell["source"]), names)

    lines = printed(run)
    assert lines[0].startswith("rule 4: ")
    assert "    no   price < 80: missing" in lines
    trades, fired = names["trades"], names["fired"].set_index("owner").trades
    cheap = (trades.symbol == "ACME") & (trades.price < 80)
    near = trades.price.between(100, 101) & trades.symbol.isin(["BOLT", "CURE"])
    assert fired.to_dict() == {
        "ann": cheap.sum(),
        "bob": (trades.change < -0.05).sum(),
        "cid": near.sum(),
    }


@pytest.mark.spark
def test_geofences(spark, printed, tmp_path):
    pytest.importorskip("matplotlib")
    module = load("geofences.py")
    lines = printed(lambda: module.main("fences.png"))
    rows = [(float(x), float(y), kind, speed) for _, spot, kind, speed in module.positions(2_000)
            for x, y in [spot[6:-1].split()]]  # fmt: skip
    lorries = sum(13.42 <= x <= 13.48 and 52.50 <= y <= 52.53 and kind == "lorry" for x, y, kind, _ in rows)
    assert lines[1].startswith(f"{lorries:4} in fence 2")
    assert all(int(line.split()[0]) > 0 for line in lines[:3])
    assert (tmp_path / "fences.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.integration
def test_log_routing(printed, tmp_path_factory):
    pytest.importorskip("confluent_kafka")
    from confluent_kafka.admin import AdminClient, NewTopic

    from jars import NoJars
    from kafka_broker import running

    try:
        with running(tmp_path_factory.mktemp("kafka")) as bootstrap:
            admin = AdminClient({"bootstrap.servers": bootstrap})
            for future in admin.create_topics([NewTopic("logs", 2, 1), NewTopic("routed", 2, 1)]).values():
                future.result(30)
            lines = printed(lambda: load("log_routing.py").main(bootstrap, "logs", "routed"))
    except NoJars as why:
        pytest.skip(str(why))
    assert lines == [
        "4 lines, 5 routed",
        "a goes to payments",
        "b goes to payments",
        "b goes to security",
        "c goes to search",
        "c goes to security",
    ]
