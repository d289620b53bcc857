"""The nightly job of docs/spark.md runs as it stands there, and a second time after a failure."""

import datetime as dt
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rangecast as rc

pytestmark = pytest.mark.spark
pytest.importorskip("rangecast.spark")
PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_the_recipe_runs(spark, tmp_path, capsys):
    text = PAGE.read_text()
    code = re.search(r"## A nightly job.*?```py\n(.*?)```", text, re.DOTALL)[1].replace(
        "/data", str(tmp_path)
    )
    day = dt.date.today() - dt.timedelta(days=1)
    for folder, rows in (
        (
            "changes",
            [(1, "price > 10", "upsert", 1), (2, "price <", "upsert", 1), (3, "price < 5", "delete", 2)],
        ),
        ("events", [(7, 12), (8, 3)]),
    ):
        names = ["id", "condition", "op", "changed_at"] if folder == "changes" else ["id", "price"]
        (tmp_path / folder / str(day)).mkdir(parents=True)
        table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
        pq.write_table(table, tmp_path / folder / str(day) / "part.parquet")
    for _ in range(2):
        exec(compile(code, str(PAGE), "exec"), {"schema": rc.Schema(rc.Int("price"))})
    found = spark.read.parquet(str(tmp_path / "matches" / str(day)))
    assert [row.asDict() for row in found.collect()] == [{"event_id": 7, "subscription_id": 1, "price": 12}]
    assert spark.read.parquet(str(tmp_path / "rejected" / str(day))).count() == 1
    assert rc.Store.open(tmp_path / "alerts").holds() == []
    assert "1 rejected" not in capsys.readouterr().out
