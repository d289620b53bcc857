"""Places: circles, boxes and polygons beside plain Python and shapely, in every index, at every door."""

import json
import math
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv

import rangecast as rc
from oracle import rows_of
from rangecast.engine import REGISTRY
from rangecast.language import lint
from rangecast.types.places import EARTH_RADIUS


def schema_of():
    return rc.Schema(rc.Point("at"), rc.Int("a"))


# the definition of each shape, in plain Python


def distance(one, other):
    """Metres along the great circle, by the haversine formula."""
    (x, y), (u, v) = (tuple(map(math.radians, place)) for place in (one, other))
    h = math.sin((v - y) / 2) ** 2 + math.cos(y) * math.cos(v) * math.sin((u - x) / 2) ** 2
    return 2 * EARTH_RADIUS * math.asin(min(1.0, math.sqrt(h)))


def in_box(place, west, south, east, north):
    x, y = place
    xs = {x, 180.0, -180.0} if abs(x) == 180 else {x}
    across = any(west <= x <= east if west <= east else x >= west or x <= east for x in xs)
    return across and south <= y <= north


def in_polygon(place, rings):
    # on the grid of whole numbers, where shapely's doubles are exact; a turn further for the date line
    shape = shapely.Polygon(rings[0], rings[1:])
    x, y = place
    return any(shape.covers(shapely.Point(x + turn, y)) for turn in (-360, 0, 360))


def written(rings):
    shown = ("(" + ", ".join(f"{x} {y}" for x, y in [*ring, ring[0]]) + ")" for ring in rings)
    return "POLYGON(" + ", ".join(shown) + ")"


# whole degrees, so that points on borders, corners, poles and the date line are common
LONGITUDES = st.one_of(st.integers(-180, 180), st.sampled_from([-180, -179, -1, 0, 1, 2, 179, 180]))
LATITUDES = st.one_of(st.integers(-90, 90), st.sampled_from([-90, -89, -1, 0, 1, 2, 89, 90]))
POINTS = st.tuples(LONGITUDES, LATITUDES)
NEAR = st.tuples(st.integers(-3, 3), st.integers(-3, 3))


def circles(centre, metres, unit):
    size = {"m": 1, "km": 1000, "mi": 1609.344}[unit]

    def holds(place, _):
        away = distance(centre, place)
        # a radius that nothing lies on, by the margin of two formulas
        return None if abs(away - metres * size) < 1e-3 else away < metres * size

    return f"at within {metres} {unit} of ({centre[0]}, {centre[1]})", holds


@st.composite
def triangles(draw):
    # with a hole, at any place, perhaps over the date line
    left = draw(st.integers(-182, 180))
    base = draw(st.integers(-89, 84))
    outer = [(left, base), (left + draw(st.integers(3, 8)), base), (left + draw(st.integers(0, 8)), base + 5)]
    shape = shapely.Polygon(outer)
    rings = [outer]
    hole = [(left + 2, base + 1), (left + 3, base + 1), (left + 2, base + 2)]
    if draw(st.booleans()) and shape.contains_properly(shapely.Polygon(hole)):
        rings.append(hole)
    return f"at in polygon '{written(rings)}'", lambda place, _: in_polygon(place, rings)


@st.composite
def boxes(draw):
    west, east = draw(LONGITUDES), draw(LONGITUDES)
    south, north = sorted((draw(LATITUDES), draw(LATITUDES)))
    return (
        f"at in box ({west}, {south}, {east}, {north})",
        lambda place, _: in_box(place, west, south, east, north),
    )


ATOMS = st.one_of(
    st.builds(
        circles,
        st.one_of(POINTS, NEAR),
        st.sampled_from([0.5, 111, 112_000, 400_000, 3_000_000, 12_000_000, 25_000_000]),
        st.sampled_from(["m", "km", "mi"]),
    ),
    triangles(),
    boxes(),
    st.integers(0, 2).map(lambda n: (f"a > {n}", lambda _, a: a > n)),
)


def joined(word, parts):
    text = "(" + f" {word} ".join(text for text, _ in parts) + ")"

    def said(place, a):
        found = [part(place, a) for _, part in parts]
        return None if None in found else (all if word == "and" else any)(found)

    return text, said


def denied(part):
    text, said = part
    return f"not {text}", lambda place, a: None if said(place, a) is None else not said(place, a)


CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)).map(
            lambda p: joined(*p)
        ),
        inner.map(denied),
    ),
    max_leaves=5,
)
EVENTS = st.tuples(st.one_of(POINTS, NEAR), st.integers(0, 3))


@given(st.lists(CONDITIONS, min_size=1, max_size=4), st.lists(EVENTS, min_size=1, max_size=5))
def test_any_condition_says_what_plain_python_says(conditions, events):
    schema = schema_of()
    rows = [{"at": list(at), "a": a} for at, a in events]
    said = [[holds(at, a) for _, holds in conditions] for at, a in events]
    subs = rc.Subscriptions.parse(schema, {k: text for k, (text, _) in enumerate(conditions)}, remarks=False)
    for kind in ("scan", "rtree"):  # one of layouts, one that changes in place
        index = rc.open_index(kind, schema)
        index.insert(subs)
        for row, holds, found in zip(
            rows, said, rows_of(index.match(rc.Events.from_rows(schema, rows))), strict=True
        ):
            for k, held in enumerate(holds):
                if held is not None:
                    assert (k in found) is held, (conditions[k][0], row)
            assert sorted(index.match_one(row)) == found
            for k in range(len(conditions)):
                told = index.explain(k, row)
                assert told.matches is (k in found)
                assert told.verdict is not None


@given(st.data())
def test_polygons_on_fine_grids_are_those_of_shapely(data):
    # corners and points of seven decimals, far apart and next to each other, slanted edges and long ones
    n = data.draw(st.integers(3, 9))
    size = data.draw(st.sampled_from([3, 40, 1_799_999_999]))
    corners = data.draw(
        st.lists(
            st.tuples(st.integers(-size, size), st.integers(-size // 2, size // 2)), min_size=n, max_size=n
        )
    )
    shape = shapely.Polygon(corners)
    if not shape.is_valid or shape.area == 0:
        shape = shapely.convex_hull(shapely.MultiPoint(corners))
        if not isinstance(shape, shapely.Polygon):
            return
    schema = rc.Schema(rc.Point("at"))
    index = rc.open_index("scan", schema)
    text = shapely.to_wkt(shapely.transform(shape, lambda c: c / 1e7), rounding_precision=7)
    index.insert(rc.Subscriptions.parse(schema, {1: f"at in polygon '{text}'"}))
    (west, south), (east, north) = np.array(corners).min(0), np.array(corners).max(0)
    x = np.array(data.draw(st.lists(st.integers(west - 1, east + 1), min_size=8, max_size=8)))
    y = np.array(data.draw(st.lists(st.integers(south - 1, north + 1), min_size=8, max_size=8)))
    # middles of edges, corners, and whatever was drawn
    points = np.concatenate([np.stack([x, y], 1), corners, (np.array(corners) + np.roll(corners, 1, 0)) // 2])
    points = points[(abs(points[:, 0]) <= 1_800_000_000) & (abs(points[:, 1]) <= 900_000_000)]
    wanted = shapely.covers(shape, shapely.points(points.astype(float)))
    found = index.count(rc.Events.from_arrays(schema, {"at": points / 1e7})) > 0
    assert found.tolist() == wanted.tolist()


@pytest.mark.parametrize("kind", sorted(REGISTRY))
def test_every_index(kind, tmp_path, leg):
    schema = schema_of()
    rng = np.random.default_rng(5)
    centres = np.round(rng.normal([13.4, 52.5], 0.05, (40, 2)), 4).tolist()
    texts = {
        k: f"at within {300 + 40 * k} m of ({x}, {y}) and a > 1" for k, (x, y) in enumerate(centres[:20])
    }
    texts |= {
        20 + k: f"at in polygon '{written([[(x, y), (x + 0.08, y), (x, y + 0.07)]])}'"
        for k, (x, y) in enumerate(centres[20:30])
    }
    texts[30] = "at within 4 km of (13.4, 52.5) and not at within 2 km of (13.4, 52.5)"
    texts[31] = "at in box (13.35, 52.45, 13.4, 52.55) or a = 3 and not at within 1 km of (13.4, 52.5)"
    texts[32] = "at within 3 km of (13.4, 52.5) and at within 3 km of (13.43, 52.5) or at is missing"
    places = np.round(rng.normal([13.4, 52.5], 0.04, (60, 2)), 4).tolist()
    step = 3 if leg == "nojit" else 1
    rows = [*({"at": at, "a": k % 4} for k, at in list(enumerate(places))[::step]), {"a": 2}]

    def holds(k, row):
        at, a = row.get("at"), row["a"]
        if at is None:
            return k == 32
        centre = distance(at, (13.4, 52.5))
        if k < 20:
            return distance(at, centres[k]) <= 300 + 40 * k and a > 1
        if k < 30:
            (x, y), (u, v) = centres[k], at
            return u >= x and v >= y and (u - x) / 0.08 + (v - y) / 0.07 <= 1
        if k == 30:
            return 2000 < centre <= 4000
        if k == 31:
            return in_box(at, 13.35, 52.45, 13.4, 52.55) or (a == 3 and centre > 1000)
        return centre <= 3000 and distance(at, (13.43, 52.5)) <= 3000

    subs = rc.Subscriptions.parse(schema, texts)
    index = rc.open_index(kind, schema)
    index.insert(subs.select(range(10, 33)))
    index.insert(subs)
    index.delete([3])
    wanted = [[k for k in texts if k != 3 and holds(k, row)] for row in rows]
    assert sum(map(len, wanted)) > len(rows)
    index.save(tmp_path / "index")
    loaded = rc.load_index(tmp_path / "index")
    for own in (index, loaded):
        assert rows_of(own.match(rc.Events.from_rows(own.schema, rows))) == wanted
        assert own.count(pa.Table.from_pylist(rows)).tolist() == [len(row) for row in wanted]
        assert own.match_any(rows).tolist() == [len(row) > 0 for row in wanted]
        assert [len(row) for row in rows_of(own.match(rows, limit=1))] == [min(1, len(w)) for w in wanted]
    # what lives is what was said, and another index of it gives the same
    loaded.insert(rc.Subscriptions.parse(loaded.schema, {3: texts[3]}))
    other = rc.open_index("scan", loaded.schema)
    other.insert(loaded.subscriptions())
    assert rows_of(other.match(rows)) == rows_of(loaded.match(rows))


def test_two_points_in_one_event():
    schema = rc.Schema(rc.Point("start"), rc.Tags("kinds"), rc.Point("goal"))
    texts = {
        1: "start within 1 km of (0, 0) and goal within 1 km of (1, 1)",
        2: "start within 1 km of (1, 1) or goal within 1 km of (0, 0) and kinds has 'x'",
        3: "goal in polygon 'MULTIPOLYGON(((0 0,2 0,2 2,0 0)), ((5 5,6 5,6 6,5 5)))'"
        " and not start in box (0, 0, 1, 1)",
    }
    index = rc.open_index("auto", schema)
    index.insert(rc.Subscriptions.parse(schema, texts))
    rows = [
        {"start": [0, 0], "goal": [1, 1], "kinds": ["x", "y"]},
        {"start": [1, 1], "goal": [0, 0], "kinds": ["z", "x"]},
        {"start": [3, 3], "goal": [0, 0], "kinds": ["z", "x"]},
        {"start": [3, 3], "goal": [5.9, 5.1]},
        {"goal": [0, 0]},
    ]
    assert rows_of(index.match(rows)) == [[1], [2], [2, 3], [3], []]


def test_the_date_line_and_the_poles():
    schema = rc.Schema(rc.Point("at"))
    texts = {
        1: "at within 200 km of (179.5, 0)",
        2: "at within 200 km of (0, 89)",
        3: "at in box (170, -10, -170, 10)",
        4: "at in polygon 'POLYGON((175 -5, 190 -5, 190 5, 175 5, 175 -5))'",
        5: "at in box (170, -10, 180, 10)",
        6: "at within 20100 km of (0, 0)",
        7: "at within 20000 km of (0, 0)",
    }
    index = rc.open_index("auto", schema)
    index.insert(rc.Subscriptions.parse(schema, texts))
    rows = [
        {"at": at} for at in ([179, 0], [-179.5, 0], [180, 0], [-180, 0], [180, 89.5], [-90, 89], [-171, 1])
    ]
    found = rows_of(index.match(rows))
    assert found == [
        [1, 3, 4, 5, 6, 7],
        [1, 3, 4, 6, 7],
        [1, 3, 4, 5, 6],
        [1, 3, 4, 5, 6],
        [2, 6, 7],
        [2, 6, 7],
        [3, 4, 6, 7],
    ]


@pytest.mark.without_kernels
def test_many_texts_of_one_shape_say_what_each_says():
    rng = np.random.default_rng(8)
    xs = np.round(np.concatenate([rng.uniform(-5, 5, 30), [179.99, -180, 180, 0, 0, 3]]), 3).tolist()
    ys = np.round(np.concatenate([rng.uniform(-5, 5, 30), [0, 1, 2, 90, -89.999, 3]]), 3).tolist()
    forms = (
        "at within {r} km of ({x}, {y}) and a > {k}",
        "a = {k} or at within {r} km of ({x}, {y})",
        "at within {r} km of ({x}, {y}) and at within 900 km of ({y}, {x})",
        "at in box ({x}, -5, {y}, {z}) or at within {r} km of (1, 1)",
        "not (at within {r} km of ({x}, {y}) or a > {k})",
        "at in polygon 'POLYGON(({x} {y}, {y} {z}, 3 -4, {x} {y}))' and at is present",
    )
    places = [{"at": [round(x, 3), round(y, 3)], "a": 3} for x, y in rng.uniform(-6, 6, (40, 2)).tolist()]
    places += [{"at": [x, y]} for x, y in zip(xs, ys, strict=True)]
    for form in forms:
        texts = [
            form.format(x=x, y=y, z=min(90, abs(y) + 1), r=100 + 9 * k, k=k % 5)
            for k, (x, y) in enumerate(zip(xs, ys, strict=True))
        ]
        together, alone = schema_of(), schema_of()
        subs = rc.Subscriptions.parse(together, ids=range(36), texts=texts, remarks=False, on_error="collect")
        one_by_one = [
            rc.Subscriptions.parse(alone, {k: text}, remarks=False, on_error="collect")
            for k, text in enumerate(texts)
        ]
        other = rc.Subscriptions.concat(one_by_one)
        assert subs.ids.arrow() == other.ids.arrow()
        assert [(r.id, r.reason) for r in subs.rejected] == [(r.id, r.reason) for r in other.rejected]
        assert len(subs) >= 29
        # the same intervals; regions have other numbers where others were named before
        assert np.array_equal(subs.boxes.attributes, other.boxes.attributes)
        plain = (subs.boxes.attributes & 0xFFFF) != 0
        assert np.array_equal(subs.boxes.lows[plain], other.boxes.lows[plain])
        assert np.array_equal(subs.boxes.highs[plain], other.boxes.highs[plain])
        found = []
        for own, schema in ((subs, together), (other, alone)):
            index = rc.open_index("scan", schema)
            index.insert(own)
            found.append(rows_of(index.match(rc.Events.from_rows(schema, places))))
        assert found[0] == found[1]
        assert sum(map(len, found[0])) > 20


def test_one_geometry_of_many_subscriptions_is_kept_once():
    schema = schema_of()
    texts = {k: f"at within 500.0 m of (13.40, 52.5) and a > {k}" for k in range(5)}
    texts |= {9: "at within 0.5 km of (13.4, 52.5)", 10: "not (not at within 0.5km of (13.4,52.5))"}
    rc.Subscriptions.parse(schema, texts)
    assert schema["at"].vocabulary.words() == ["circle 13.4 52.5 500.0"]


@pytest.mark.without_kernels
def test_covers_are_never_false():
    schema = schema_of()
    texts = {
        1: "at within 1 km of (13.4, 52.5)",
        2: "at within 1 km of (13.4, 52.5) and a > 3",
        3: "at within 900 m of (13.4, 52.5)",
        4: "at in box (13.3, 52.4, 13.5, 52.6)",
        5: "at is present",
        6: "not at within 1 km of (13.4, 52.5)",
    }
    subs = rc.Subscriptions.parse(schema, texts)
    covers = {}
    for cover, text in texts.items():
        index = rc.CoverIndex(schema)
        index.insert(rc.Subscriptions.parse(schema, {cover: text}))
        covers[cover] = sorted(subs.ids.take(np.flatnonzero(index.covered(subs))).tolist())
    # 1 covers 3, and 5 covers 4, which is not seen: no shape is compared with another one
    assert covers == {1: [2], 2: [], 3: [], 4: [1, 2, 3], 5: [1, 2, 3, 6], 6: []}


@pytest.mark.without_kernels
def test_every_door_takes_points(tmp_path):
    schema = rc.Schema(rc.Point("at"))
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "at within 1 km of (13.4, 52.5)"}))
    there = [
        [13.4, 52.5], (13.4, 52.5, 30.0), {"lon": 13.4, "lat": 52.5}, {"Longitude": 13.4, "latitude": 52.5},
        {"x": 13.4, "y": 52.5}, {"type": "Point", "coordinates": [13.4, 52.5]}, "POINT(13.4 52.5)",
        "point ( 13.4  52.5 )", "13.4 52.5", "13.4, 52.5", np.array([13.4, 52.5]),
    ]  # fmt: skip
    for value in there:
        for column in (
            [value],
            [value, None],
            [None, value, "", [None, None], {"lon": None, "lat": math.nan}],
        ):
            wanted = [1 if isinstance(v, type(value)) and v is value else 0 for v in column]
            assert index.count([{"at": v} for v in column]).tolist() == wanted, value
    pairs = pa.array([[13.4, 52.5], None, [0.0, 0.0]], pa.list_(pa.float64()))
    for column in (
        pairs,
        pairs.cast(pa.large_list(pa.float32())),
        pa.array([[13.4, 52.5], None, [0, 0]], pa.list_(pa.float64(), 2)),
        pa.chunked_array([pairs]),
        pa.array([{"lng": 13.4, "lat": 52.5}, None, {"lng": 0, "lat": 0}]),
        pa.array(
            [{"type": "Point", "coordinates": [13.4, 52.5]}, None, {"type": "Point", "coordinates": [0, 0]}]
        ),
        pa.array(["POINT(13.4 52.5)", None, "0 0"]),
        pa.array(["POINT(13.4 52.5)", None, "0 0"]).dictionary_encode(),
    ):
        assert index.count(pa.table({"at": column})).tolist() == [1, 0, 0]
        frame = pa.table({"at": column}).to_pandas()
        assert index.count(frame).tolist() == [1, 0, 0]
    assert index.count(rc.Events.from_arrays(schema, {"at": np.array([[13.4, 52.5], [0, 0]])})).tolist() == [
        1,
        0,
    ]


@pytest.mark.without_kernels
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (
            [52.5, 113.4],
            "'at': a latitude must lie within [-90, 90], got 113.4; longitude comes first: is it (113.4",
        ),
        ([190, 5], "a longitude must lie within [-180, 180], got 190.0; -170 is the same meridian"),
        ([13.4], "'at' is a point: a longitude and a latitude, as [13.4, 52.5]"),
        ([13.4, None], "'at' is a point: it needs a longitude and a latitude, got [13.4, None]"),
        ([], "'at' is a point: a longitude and a latitude"),
        (5, "got 5"),
        ("somewhere", "got the string 'somewhere'"),
        ({"lon": 13.4}, "got {'lon': 13.4}"),
        ({"type": "LineString", "coordinates": [13.4, 52.5]}, "'at' is a point"),
        ([math.inf, 5], "a longitude must lie within"),
        ([True, False], "got [True, False]"),
        (["13.4", "52.5"], "got ['13.4', '52.5']"),
    ],
)
def test_what_is_no_place_is_rejected_with_its_reason(value, reason):
    schema = rc.Schema(rc.Point("at"))
    rows = [{"at": [1, 2]}, {"at": value}, {"at": None}]
    for given_rows in (rows, [rows[1]]):
        events = rc.Events.from_rows(schema, given_rows, on_error="collect")
        assert len(events) == len(given_rows) - 1
        assert reason in events.rejected[0].reason
    with pytest.raises(rc.EventError):
        rc.Events.from_rows(schema, rows)


@pytest.mark.without_kernels
def test_files_stores_and_schemas(tmp_path):
    schema = rc.Schema(rc.Point("at"))
    (tmp_path / "schema.toml").write_text(schema.to_toml())
    assert '[attributes.at]\ntype = "point"' in schema.to_toml()
    assert rc.Schema.from_toml(tmp_path / "schema.toml") == schema
    store = rc.Store.open(tmp_path / "store", schema)
    texts = {1: "at within 1 km of (13.4, 52.5)", 2: "at not in box (13, 52, 14, 53)", 3: "latitude(at) > 60"}
    store.insert(rc.Subscriptions.parse(store.schema, texts))
    store.insert(rc.Subscriptions.parse(store.schema, {4: "at in polygon 'POLYGON((0 0,1 0,1 1,0 0))'"}))
    store.delete([3])
    places = [[13.4, 52.5], [13.9, 52.5], [0.5, 0.2], [200, 5], None]
    (tmp_path / "lists.jsonl").write_text(
        "".join(json.dumps({"id": k, "at": at}) + "\n" for k, at in enumerate(places))
    )
    (tmp_path / "objects.jsonl").write_text(
        "".join(
            json.dumps({"id": k, "at": at and dict(zip(("lon", "lat"), at, strict=True))}) + "\n"
            for k, at in enumerate(places)
        )
    )
    (tmp_path / "texts.csv").write_text(
        "id,at\n" + "".join(f"{k},{f'POINT({at[0]} {at[1]})' if at else ''}\n" for k, at in enumerate(places))
    )
    pq.write_table(
        pa.table({"id": range(5), "at": pa.array(places, pa.list_(pa.float64()))}), tmp_path / "lists.parquet"
    )
    for version in (None, store.version):
        if version is not None:
            store.compact()
        again = rc.Store.open(tmp_path / "store")
        for name in ("lists.jsonl", "objects.jsonl", "texts.csv", "lists.parquet"):
            done = rc.match_file(again.index(), tmp_path / name, tmp_path / "out.csv", event_id="id")
            assert sorted((tmp_path / "out.csv").read_text().split()[1:]) == ["0,1", "2,2", "2,4"], name
            assert done.n_rejected == 1
    told = str(again.index().explain(1, {"at": [13.41, 52.5]}))
    assert told == "subscription 1 matches\n  yes  at within 1 km of (13.4, 52.5): (13.41, 52.5)"
    bounds = again.index().explain(4, {"at": [13.41, 52.5]}).in_boxes()
    assert "no   at polygon 0 0 10000000 0 10000000 10000000: (13.41, 52.5)" in bounds


@pytest.mark.without_kernels
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "at within 5 m of (52, 113)",
            "column 11: 'at': a latitude must lie within [-90, 90], got 113.0; longitude",
        ),
        ("at within 5 m of (190, 5)", "-170 is the same meridian"),
        (
            "at within 5 of (1, 2)",
            "column 13: expected the unit of the distance (m, km or mi), got the name of",
        ),
        ("at within 5 m (1, 2)", "expected OF and the centre, as (13.4, 52.5), got ("),
        ("at within 5 m of 1, 2", "expected ( and longitude and latitude, got 1"),
        ("at within -5 m of (1, 2)", "'at': a distance must not be negative, got -5 m"),
        ("at within 'x' m of (1, 2)", "expected a number, got 'x'"),
        ("at in box (1, 2, 3)", "expected west, south, east and north in parentheses, 4 numbers, got )"),
        ("at in box (1, 5, 3, 2)", "south must not exceed north, got 5.0 and 2.0"),
        ("at in (1, 2)", "expected BOX (west, south, east, north) or POLYGON"),
        ("at in polygon 5", "expected a polygon in quotes"),
        ("at in polygon 'POINT(1 2)'", "expected POLYGON or MULTIPOLYGON in 'POINT(1 2)', got POINT"),
        ("at in polygon 'POLYGON((0 0,1 0,1 1))'", "must end at the corner where it begins"),
        ("at in polygon 'POLYGON((0 0,1 0,0 0))'", "three corners and the first one again"),
        ("at in polygon 'POLYGON EMPTY'", "POLYGON EMPTY is empty"),
        ("at in polygon 'POLYGON Z((0 0 1))'", "must have two numbers for each corner"),
        ("at in polygon 'POLYGON((0 0,1 95,1 1,0 0))'", "a latitude must lie within [-90, 90], got 95.0"),
        ("at in polygon 'POLYGON((0 0,1 0,1 1,0 0)'", "expected , or ) in"),
        ("at in polygon 'POLYGON((0 0,1 0,1 1,0 0)) x'", "expected the end of"),
        (
            "at > 5",
            "expected an operator (WITHIN 500 m OF (13.4, 52.5), IN BOX (...), IN POLYGON '...', IS), got >",
        ),
        ("at has 'x'", "expected an operator (WITHIN"),
        ("longitude(at) + at > 5", "arithmetic takes numbers and times, and at is point"),
        ("longitude(a) > 5", "longitude takes point, and a is int"),
        (
            "a within 5 m of (1, 2)",
            "expected an operator (= != < <= > >= BETWEEN IN IS), got the name within",
        ),
    ],
)
def test_refused(text, message):
    with pytest.raises(rc.LanguageError) as caught:
        rc.language.parse(text, schema_of())
    assert message in str(caught.value).split("\n")[0]
    with pytest.raises(rc.SubscriptionError):
        rc.Subscriptions.parse(schema_of(), dict.fromkeys(range(40), text))


@pytest.mark.without_kernels
def test_texts_read_back_and_names_stay_free():
    schema = rc.Schema(rc.Point("at"), rc.Int("within"), rc.Int("box"), rc.Int("of"), rc.Point("m"))
    for text in (
        "at WITHIN 500 m OF (13.4, 52.5)",
        "NOT at IN BOX (170, -10, -170, 10)",
        "at IN POLYGON 'POLYGON((0 0,1 0,1 1,0 0))' AND within > 3 AND box = 5 OR of < 2",
        "m WITHIN 5 km OF (0, 0)",
        "at IS PRESENT OR m IS MISSING",
    ):
        read = rc.language.parse(text, schema)
        assert str(read) == text
        assert rc.language.parse(str(read), schema) == read
    same = [
        "at within 1km of (1,2)",
        "at WITHIN 1000 metres OF (1.0, 2)",
        "at within .001e3 kilometers of (1, 2)",
    ]
    words = [
        rc.Subscriptions.parse(own, {1: text}) and own["at"].vocabulary.words()
        for text in same
        for own in [schema_of()]
    ]
    assert words == [["circle 1.0 2.0 1000.0"]] * 3
    with pytest.raises(rc.SchemaError, match="give conditions for it, and no bounds"):
        rc.Subscriptions.from_arrays(schema_of(), [1], {"at": [[1, 2]]}, {"at": [[1, 2]]})


@pytest.mark.without_kernels
def test_a_damaged_dictionary_is_refused():
    for word in ("circle 1 2", "polygon 1 2 3", "polygon ", "square 1 2 3 4", "polygon 9999999999 0 1 1 2 2"):
        with pytest.raises(rc.SchemaError, match="is not a region"):
            rc.types.places.Point("at", [word]).regions()


TWO = {
    1: "spot within 1 km of (13.4, 52.5)",
    2: "lat > 52 and spot in box (13, 52, 14, 53)",
    3: "spot is missing",
}


def two_columns():
    schema = rc.Schema(rc.Point("spot", longitude="lon", latitude="lat"), rc.Category("kind"))
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, TWO))
    return schema, index


@pytest.mark.without_kernels
@pytest.mark.filterwarnings("ignore:no event has a value")
def test_a_point_of_two_columns_at_every_door(tmp_path):
    schema, index = two_columns()
    assert schema.names == ("spot", "kind", "lon", "lat")
    assert schema.read_names == ("kind", "lon", "lat")
    (tmp_path / "schema.toml").write_text(schema.to_toml())
    assert rc.Schema.from_toml(tmp_path / "schema.toml") == schema == pickle.loads(pickle.dumps(schema))
    assert schema != rc.Schema(rc.Point("spot", longitude="x", latitude="lat"), *schema[1:2])
    rows = [{"lon": 13.4, "lat": 52.5}, {"kind": "taxi"}, {"lon": 13, "lat": 52.75}, {"LON": -5, "lat": 0}]
    wanted = [[1, 2], [3], [2], []]
    assert [sorted(index.match_one(row).tolist()) for row in rows] == wanted
    full = [{"lon": row.get("lon", row.get("LON")), "lat": row.get("lat"), "kind": None} for row in rows]
    table = pa.Table.from_pylist(
        full, pa.schema({"lon": pa.float64(), "lat": pa.float64(), "kind": pa.string()})
    )
    for events in (full, table, table.to_pandas(), table.to_batches()[0]):
        assert rows_of(index.match(events)) == wanted
    assert rows_of(index.match(rc.Events.from_arrays(schema, table.drop(["kind"]).to_pydict()))) == wanted
    with_ids = table.append_column("id", pa.array(range(4)))
    pq.write_table(with_ids, tmp_path / "events.parquet")
    csv.write_csv(with_ids, tmp_path / "events.csv")
    (tmp_path / "events.jsonl").write_text(
        "".join(json.dumps({"id": k, **row}) + "\n" for k, row in enumerate(full))
    )
    store = rc.Store.open(tmp_path / "store", schema)
    store.insert(rc.Subscriptions.parse(store.schema, TWO))
    for kind in ("parquet", "csv", "jsonl"):
        for own in (index, rc.Store.open(tmp_path / "store").index()):
            told = rc.match_file(own, tmp_path / f"events.{kind}", tmp_path / "out.csv", event_id="id")
            assert told.absent == ["kind"]
            pairs = [
                tuple(map(int, line.split(","))) for line in (tmp_path / "out.csv").read_text().split()[1:]
            ]
            assert sorted(pairs) == [(e, k) for e, row in enumerate(wanted) for k in row]


@pytest.mark.without_kernels
@pytest.mark.filterwarnings("ignore:no event has a value")
@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"lon": 13.4}, "'spot' is made of 'lon' and 'lat': 'lon' is 13.4, and 'lat' is missing"),
        ({"lat": 5}, "'spot' is made of 'lon' and 'lat': 'lat' is 5.0, and 'lon' is missing"),
        (
            {"lon": 190, "lat": 5},
            "'spot': a longitude must lie within [-180, 180], got 190.0; -170 is the same",
        ),
        ({"lon": 5, "lat": 95.0}, "'spot': a latitude must lie within [-90, 90], got 95.0"),
        ({"lon": "east", "lat": 5}, "'lon' is a float, got the string 'east'"),
    ],
)
def test_half_a_place_is_rejected(row, reason, tmp_path):
    schema, index = two_columns()
    events = rc.Events.from_rows(schema, [{"lon": 1, "lat": 2}, row], on_error="collect")
    assert (len(events), [rejected.row for rejected in events.rejected]) == (1, [1])
    assert reason in events.rejected[0].reason
    with pytest.raises(rc.EventError, match="event 1: '"):
        rc.Events.from_rows(schema, [{"lon": 1, "lat": 2}, row])
    lines = f"id,lon,lat\n1,1,2\n2,{row.get('lon', '')},{row.get('lat', '')}\n"
    (tmp_path / "events.csv").write_text(lines)
    told = rc.match_file(index, tmp_path / "events.csv", tmp_path / "out.csv", event_id="id")
    assert (told.n_events, told.n_rejected) == (1, 1)


@pytest.mark.without_kernels
def test_points_of_two_columns_that_cannot_be():
    for wrong in (
        {"longitude": "a"},
        {"longitude": "a", "latitude": "a"},
        {"longitude": "spot", "latitude": "a"},
    ):
        with pytest.raises(
            rc.SchemaError, match="attribute 'spot': a point that is made of two columns names both"
        ):
            rc.Point("spot", **wrong)
    point = rc.Point("spot", longitude="lon", latitude="lat")
    with pytest.raises(rc.SchemaError, match="'spot' is made of 'lon', a float or an int, not a category"):
        rc.Schema(point, rc.Category("lon"))
    with pytest.raises(rc.SchemaError, match="made of 'lat', a float or an int, not a computed attribute"):
        rc.Schema(point, rc.Float("lon"), rc.Float("lat", "lon * 2"))
    schema, index = two_columns()
    with pytest.raises(rc.SchemaError, match="'spot' is made of the columns 'lon' and 'lat': give those"):
        rc.Events.from_arrays(schema, {"spot": [[1, 2]]})
    with pytest.warns(rc.RangecastWarning, match="'spot' is ignored: it is made of 'lon' and 'lat'"):
        assert index.match_one({"spot": [13.4, 52.5]}).tolist() == [3]


@pytest.mark.without_kernels
def test_an_edge_the_long_way_round_is_a_warning():
    schema = schema_of()
    over, meant = (
        "POLYGON((179 0, -179 0, -179 1, 179 1, 179 0))",
        "POLYGON((179 0, 181 0, 181 1, 179 1, 179 0))",
    )
    (found,) = lint(schema, f"a > 1 and at in polygon '{over}'")
    assert found.what == "an edge of the polygon goes from 179 to -179 degrees the long way round the earth"
    assert found.meant == "181 for -179, which goes on over the date line"
    whole = "POLYGON((-180 -90, 180 -90, 180 90, -180 90, -180 -90))"
    assert lint(schema, f"at in polygon '{meant}' or at in polygon '{whole}'") == []
    for n in (1, 30):  # one by one, and as texts of one shape
        with pytest.warns(rc.RangecastWarning, match="the long way round the earth"):
            rc.Subscriptions.parse(schema, {k: f"at in polygon '{over}' and a > {k}" for k in range(n)})
