"""Places on Spark: as structs, arrays and texts, the same as in process."""

import numpy as np
import pytest

import rangecast as rc

pytestmark = pytest.mark.spark
rs = pytest.importorskip("rangecast.spark")


def test_places_of_every_form_match_as_in_process(spark, tmp_path):
    rng = np.random.default_rng(4)
    centres = np.round(rng.uniform([12, 51], [15, 54], (60, 2)), 4).tolist()
    texts = [(k, f"at within {5 + k} km of ({x}, {y})") for k, (x, y) in enumerate(centres[:30])]
    texts += [
        (k, f"at in polygon 'POLYGON(({x} {y}, {x + 1} {y}, {x} {y + 1}, {x} {y}))' and kind != 'bus'")
        for k, (x, y) in enumerate(centres[30:50], 30)
    ]
    texts += [
        (50, "not at within 100 km of (13.4, 52.5)"),
        (51, "at in box (13, 52, 14, 53) or kind = 'bus'"),
    ]
    texts += [(52, "at within 5 of (1, 2)"), (53, "latitude(at) > 53.5")]
    schema = rc.Schema(rc.Point("at"), rc.Category("kind"))
    store = rc.Store.open(tmp_path / "store", schema)
    report = rs.ingest(spark.createDataFrame(texts, "id long, condition string"), schema, store)
    assert (report.accepted, [row.id for row in report.rejected.collect()]) == (53, ["52"])
    places = np.round(rng.uniform([12, 51], [15, 54], (200, 2)), 4).tolist()
    rows = [(k, at if k % 9 else None, "bus" if k % 5 == 0 else "taxi") for k, at in enumerate(places)]
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {k: text for k, text in texts if k != 52}))
    events = [{"at": at, "kind": kind} for _, at, kind in rows]
    found, ids = index.match(rc.Events.from_rows(schema, events)).pairs()
    wanted = sorted(zip(found.tolist(), ids.tolist(), strict=True))
    assert len(wanted) > 300
    arrays = spark.createDataFrame(rows, "id long, at array<double>, kind string")
    structs = arrays.selectExpr(
        "id", "if(at is null, null, struct(at[0] as lon, at[1] as lat)) as at", "kind"
    )
    words = arrays.selectExpr("id", "concat('POINT(', at[0], ' ', at[1], ')') as at", "kind")
    for frame in (arrays, structs, words):
        answer = rs.match(frame, store, event_id="id").collect()
        assert sorted((row[0], row[1]) for row in answer) == wanted
    with pytest.raises(
        rc.EventError, match="column 'at' must be a struct of lon and lat, an array of numbers"
    ):
        rs.match(arrays.selectExpr("id", "at[0] as at", "kind"), store, event_id="id")
