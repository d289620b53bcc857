"""Random conditions of the whole language on Spark: what they mean in plain Python, as in process."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rangecast as rc
from meanings import EVENTS, conditions, matches, said

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::rangecast.RangecastWarning")]
rs = pytest.importorskip("rangecast.spark")

COLUMNS = (
    "id long, a long, b long, x double, at timestamp_ntz, name string, title string, tags array<string>, "
    "ip string, ok boolean, lon double, lat double, seen long"
)


def schema_of():
    return rc.Schema(
        rc.Int("a"), rc.Int("b"), rc.Float("x"), rc.Timestamp("at"), rc.Text("name"), rc.Category("title"),
        rc.Tags("tags"), rc.Category("ip"), rc.Bool("ok"), rc.Point("spot", longitude="lon", latitude="lat"),
        rc.Int("total", "a + b"), rc.Timestamp("seen", unit="s"),
    )  # fmt: skip


# a name for an expression, and a time in seconds, which the events give as well
COMPUTED = [
    said("total > 2", lambda a, b: a + b > 2, "a", "b"),
    ("seen >= 1769860800", lambda row: None if row.get("a") is None else row["a"] >= 0),
    said("seen on 2026-01-31", lambda a: True, "a"),
]


@settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(some=st.lists(conditions(), min_size=30, max_size=40), rows=st.lists(EVENTS, min_size=20, max_size=30))
def test_spark_says_what_plain_python_says(spark, tmp_path_factory, some, rows):
    some = [*some, *COMPUTED]
    wanted = [(e, k) for e, found in enumerate(matches(some, rows)) for k in found]
    schema = schema_of()
    texts = spark.createDataFrame(
        [(k, text) for k, (text, _) in enumerate(some)], "id long, condition string"
    )
    store = rc.Store.open(tmp_path_factory.mktemp("language") / "store", schema)
    report = rs.ingest(texts, schema, store)
    assert (report.accepted, report.rejected.count()) == (len(some), 0)
    events = []
    for k, row in enumerate(rows):
        lon, lat = map(float, row.get("spot", ())) if "spot" in row else (None, None)
        known = [row.get(name) for name in ("a", "b", "x", "at", "name", "title", "tags", "ip", "ok")]
        seen = None if row.get("a") is None else 1769860800 + row["a"]  # around that noon
        events.append((k, *known, lon, lat, seen))
    answer = rs.match(spark.createDataFrame(events, COLUMNS), store, event_id="id").collect()
    assert sorted((row[0], row[1]) for row in answer) == wanted
