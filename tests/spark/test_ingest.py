"""Ingest on Spark: what is loaded, what is rejected, which row of an id wins."""

import datetime as dt
import importlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rangecast as rc
from rangecast.model.boxes import entries_of
from rangecast.store.change import EXPRESSIONS
from rangecast.store.versions import new_stem
from rangecast.types import places

pytestmark = pytest.mark.spark
rs = pytest.importorskip("rangecast.spark")


@pytest.fixture
def schema():
    return rc.Schema(rc.Int("price"), rc.Category("symbol"))


def contents(store):
    """Each subscription as its id and its boxes."""
    subs = store.subscriptions()
    out = {}
    for box in range(subs.n_boxes):
        bounds = tuple((j, tuple(spans)) for j, spans in entries_of(subs.boxes, box))
        out.setdefault(subs.ids[int(subs.owners[box])], []).append(bounds)
    return {id: sorted(boxes) for id, boxes in out.items()}


def texts(store):
    subs = store.subscriptions()
    return {subs.ids[row]: text for row, text in enumerate(subs.texts)}


def test_texts_of_many_partitions(spark, schema, tmp_path):
    rows = [(i, f"price between {i} and {i + 10} and symbol != 'S{i % 7}'") for i in range(900)]
    rows += [(1000 + i, f"symbol in ('S{i % 5}', 'T{i % 3}') or price = {i}") for i in range(300)]
    frame = spark.createDataFrame(rows, "id long, condition string").repartition(4)
    report = rs.ingest(frame, schema, tmp_path / "store")
    store = rc.Store.open(tmp_path / "store")
    assert (report.rows, report.accepted, report.rejected_rows) == (1200, 1200, 0)
    assert report.rejected.count() == 0
    assert report.version == store.version
    assert store.snapshots() == [report.version]
    assert set(report.seconds) >= {"read", "parse", "store", "publish"}
    # the same as parsed in one process, with the words in the store's order
    words = store.schema["symbol"].vocabulary.words()
    alone = rc.Schema(rc.Int("price"), rc.Category("symbol", words))
    expected = rc.Store.open(tmp_path / "expected", alone)
    expected.insert(rc.Subscriptions.parse(alone, rows))
    assert contents(store) == contents(expected)
    assert texts(store) == dict(rows)
    assert not list((store.path / "staging").iterdir())


def test_bad_rows_are_set_aside_and_stop_nothing(spark, schema, tmp_path):
    rows = [
        (1, "price > 5", "a"),
        (2, "price >", "b"),
        (None, "price > 5", "c"),
        (4, None, "d"),
        (5, "prize > 5", "e"),
        (6, "symbol = 'A'", "f"),
    ]
    frame = spark.createDataFrame(rows, "id long, condition string, note string")
    report = rs.ingest(frame, schema, tmp_path / "store")
    assert (report.rows, report.accepted, report.rejected_rows) == (6, 2, 4)
    rejected = {row.id: row for row in report.rejected.collect()}
    assert set(rejected) == {"2", None, "4", "5"}
    assert rejected[None].reason == "a subscription must have an id, got null"
    assert "unknown attribute 'prize'" in rejected["5"].reason
    assert '"note": "b"' in rejected["2"].raw
    assert "6 rows, 2 accepted, 0 deleted, 0 superseded, 4 rejected" in str(report)
    assert sorted(contents(rc.Store.open(tmp_path / "store"))) == [1, 6]


def test_the_latest_good_row_of_an_id_wins(spark, schema, tmp_path):
    rows = [
        ("a", "price = 1", 5),
        ("a", "price = 2", 9),
        ("a", "price = 3", 7),
        ("b", "price = 4", 1),
        ("b", "price = ", 2),
        ("c", "price = 5", 3),
        ("c", "price = 6", 3),
        ("d", "price = 7", None),
    ]
    frame = spark.createDataFrame(rows, "id string, condition string, seq int").coalesce(1)
    report = rs.ingest(frame, schema, tmp_path / "store", sequence="seq")
    store = rc.Store.open(tmp_path / "store")
    prices = {id: boxes[0][0][1][0][0] for id, boxes in contents(store).items()}
    assert prices == {"a": 2, "b": 4, "c": 6}
    assert texts(store) == {"a": "price = 2", "b": "price = 4", "c": "price = 6"}
    assert (report.accepted, report.superseded, report.rejected_rows) == (3, 3, 2)
    assert "the sequence 'seq' must not be null" in {r.id: r.reason for r in report.rejected.collect()}["d"]


def test_upserts_and_deletes_are_one_version(spark, schema, tmp_path):
    first = spark.createDataFrame([(i, f"price = {i}") for i in range(5)], "id int, condition string")
    rs.ingest(first, schema, tmp_path / "store")
    rows = [
        (0, "delete", None),
        (1, "UPSERT ", "price = 11"),
        (2, None, "price = 12"),
        (3, "erase", "price = 13"),
        (9, "insert", "price = 19"),
        (9, "remove", None),
    ]
    frame = spark.createDataFrame(rows, "id int, op string, condition string").coalesce(1)
    report = rs.ingest(frame, None, rc.Store.open(tmp_path / "store"), op="op", publish=False)
    store = rc.Store.open(tmp_path / "store")
    assert report.version == store.version == 2
    assert (report.accepted, report.deleted, report.superseded, report.rejected_rows) == (2, 2, 1, 1)
    assert report.rejected.collect()[0].reason == "op must be upsert or delete, got 'erase'"
    assert {id: boxes[0][0][1][0][0] for id, boxes in contents(store).items()} == {1: 11, 2: 12, 3: 3, 4: 4}
    assert texts(store) == {1: "price = 11", 2: "price = 12", 3: "price = 3", 4: "price = 4"}
    assert store.snapshots() == [1]


def test_bounds_in_columns(spark, tmp_path):
    schema = rc.Schema(rc.Int("price"), rc.Category("symbol"), rc.Timestamp("at"))
    at = dt.datetime(2026, 1, 2)
    rows = [(1, 5, 9, "A", None), (2, None, 3, None, at), (3, 9, 5, "B", None), (4, None, None, "C", None)]
    frame = spark.createDataFrame(
        rows, "id long, price_low int, price_high int, symbol string, at_low timestamp_ntz"
    )
    report = rs.ingest(frame, schema, tmp_path / "store")
    store = rc.Store.open(tmp_path / "store")
    assert (report.accepted, report.rejected_rows) == (3, 1)
    assert "low must not exceed high on 'price', got [9, 5]" in report.rejected.collect()[0].reason
    index = store.index()
    events = rc.Events.from_rows(
        index.schema, [{"price": 5, "symbol": "A"}, {"price": 0, "at": at}, {"symbol": "C"}, {"price": 4}]
    )
    m = index.match(events)
    assert [m.row(e).tolist() for e in range(4)] == [[1], [2], [4], []]
    assert store.subscriptions().texts is None


def test_nothing_to_ingest(spark, schema, tmp_path):
    report = rs.ingest(spark.createDataFrame([], "id long, condition string"), schema, tmp_path / "store")
    assert (report.version, report.rows, report.accepted) == (0, 0, 0)


@pytest.mark.parametrize(
    ("columns", "arguments", "message"),
    [
        ("key long, condition string", {}, "id: there is no column 'id'; there are key, condition"),
        (
            "id double, condition string",
            {},
            "'id' must have whole numbers or strings, got double",
        ),
        ("id long, condition int", {}, "condition: the column 'condition' must have strings, got int"),
        ("id long, text string", {}, "must be a condition column, or bounds such as price_low"),
        ("id long, condition string", {"op": "op"}, "op: there is no column 'op'"),
        ("id long, condition string, s string", {"sequence": "s"}, "'s' must have whole numbers or times"),
    ],
)
def test_what_is_refused_at_once(spark, schema, tmp_path, columns, arguments, message):
    frame = spark.createDataFrame([], columns)
    with pytest.raises(rc.SubscriptionError, match=message):
        rs.ingest(frame, schema, tmp_path / "store", **arguments)
    with pytest.raises(rc.StorageError, match="give a schema"):
        rs.ingest(frame, None, tmp_path / "other", **arguments)


def test_latest_rows_of_many(size):
    from rangecast.model.ids import Ids
    from rangecast.spark.ingest_tasks import latest_rows

    rng = np.random.default_rng(5)
    n = size(5_000)
    ids, sequences = rng.integers(0, 300, n), rng.integers(0, 9, n)
    best = {}
    for row in range(n):
        key = ids[row]
        if key not in best or sequences[row] >= sequences[best[key]]:
            best[key] = row
    expected = sorted(best.values())
    for given in (Ids.of(ids), Ids.of([f"s{i}" for i in ids])):
        assert latest_rows(given, sequences, np.arange(n)).tolist() == expected


def test_sets_go_through_staging_as_they_were_said(spark, schema, tmp_path):
    listed = ",".join(f"'s{i}'" for i in range(0, 3_000, 2))
    rows = [(i, f"symbol = 's{i}'") for i in range(3_000)]
    rows += [(3_000, f"symbol in ({listed})"), (3_001, f"symbol not in ({listed}) and price != 5")]
    frame = spark.createDataFrame(rows, "id long, condition string").repartition(3)
    report = rs.ingest(frame, schema, tmp_path / "store")
    assert report.rejected_rows == 0
    store = rc.Store.open(tmp_path / "store")
    subs = store.subscriptions()
    assert subs.n_boxes == len(subs) == 3_002
    index = store.index()
    events = [{"symbol": symbol, "price": 1} for symbol in ("s8", "s9", "x")]
    found = index.match(rc.Events.from_rows(index.schema, events))
    assert [sorted(found.row(e).tolist()) for e in range(3)] == [[8, 3_000], [9, 3_001], [3_001]]


def test_workers_agree_on_expressions(tmp_path):
    """The two passes, without a session: workers that meet expressions in any order stage the same boxes."""
    module = importlib.import_module("rangecast.spark.ingest_tasks")
    schema = rc.Schema(rc.Int("a"), rc.Int("b"), rc.Int("total", "a + b"))
    store = rc.Store.open(tmp_path / "store", schema)
    texts = ["a * b > 5", "a > 3", "a > b", "a - b between 1 and 2", "b * a = 12", "a = 1 or", "total = 7"]
    ids = list(range(len(texts)))
    table = pa.table({"id": ids, "condition": texts, module.ORDER: ids})
    halves = [table.slice(0, 3), table.slice(3)]
    columns = module.Columns("id", "condition", None, None)
    place = str(store.path)
    found = [b for half in halves for b in module.word_finder(place, columns)(iter(half.to_batches()))]
    fresh = sorted({row["word"] for b in found for row in b.to_pylist() if row["position"] == -1})
    assert fresh == ["a * b", "a + b", "a - b"]
    store.learn({EXPRESSIONS: fresh})
    (store.path / "fragments").mkdir()
    load = module.loader(place, str(tmp_path), new_stem(), columns)
    staged = [
        module.StagedFragment(**row)
        for h in halves
        for b in load(iter(h.to_batches()))
        for row in b.to_pylist()
    ]
    store.apply_fragments([row.entry for row in staged if row.name])
    again = rc.Store.open(tmp_path / "store").index()
    assert sorted(again.match_one({"a": 4, "b": 3}).tolist()) == [0, 1, 2, 3, 4, 6]


def test_polygons_are_read_once(tmp_path, monkeypatch):
    """The second pass takes what the first has made of polygons, and stages what it would by itself."""
    module = importlib.import_module("rangecast.spark.ingest_tasks")
    schema = rc.Schema(rc.Point("at"), rc.Category("kind"))
    corners = [(k / 4, k / 8) for k in range(40)] + [(179.5, 3.0)]
    wkt = [f"POLYGON(({x} {y}, {x + 1} {y}, {x + 1} {y + 1}, {x} {y}))" for x, y in corners]
    texts = [f"at in polygon '{one}' and kind = 'k{k}'" for k, one in enumerate(wkt)]
    texts += [f"not at in polygon '{wkt[3]}' or at in polygon '{wkt[4]}'", "at in polygon 'POLYGON((1 2))'"]
    table = pa.table({"id": np.arange(len(texts)), "condition": texts, module.ORDER: np.arange(len(texts))})
    halves = [table.slice(0, 20), table.slice(20)]
    columns = module.Columns("id", "condition", None, None)
    read = []
    honest = places.read_polygon
    monkeypatch.setattr(places, "read_polygon", lambda text: read.append(text) or honest(text))
    made = []
    for name, staging in (("remembered", tmp_path / "staging"), ("forgotten", None)):
        store = rc.Store.open(tmp_path / name, schema)
        (store.path / "fragments").mkdir()
        (tmp_path / "staging").mkdir(exist_ok=True)
        find = module.word_finder(str(store.path), columns, staging and str(staging))
        words = [row for half in halves for b in find(iter(half.to_batches())) for row in b.to_pylist()]
        keys = {-1: EXPRESSIONS, **dict(enumerate(schema.names))}
        named = {key: sorted({r["word"] for r in words if r["position"] == at}) for at, key in keys.items()}
        store.learn(named)
        read.clear()
        load = module.loader(str(store.path), str(staging or tmp_path), new_stem(), columns)
        staged = [
            module.StagedFragment(**row)
            for h in reversed(halves)
            for b in load(iter(h.to_batches()))
            for row in b.to_pylist()
        ]
        made.append(len(read))
        store.apply_fragments([row.entry for row in staged if row.name])
        assert sum(row.rejected for row in staged) == 1
    # what is no polygon is read again, for its reason
    assert made[0] <= 4
    assert made[1] > 40
    events = [{"at": (x + 0.7, y + 0.2), "kind": f"k{k}"} for k, (x, y) in enumerate(corners[:-1])]
    events += [{"at": (-179.9, 3.2), "kind": "k40"}]
    one, other = (rc.Store.open(tmp_path / name).index() for name in ("remembered", "forgotten"))
    found = one.match(rc.Events.from_rows(one.schema, events)).sort()
    wanted = other.match(rc.Events.from_rows(other.schema, events)).sort()
    assert [found.row(e).tolist() for e in range(41)] == [wanted.row(e).tolist() for e in range(41)]
    assert all(e in found.row(e).tolist() for e in range(41))


def test_payload_and_ends_come_along(spark, schema, tmp_path):
    rows = [
        (1, "price = 1", "upsert", "ann", 5, "2031-01-01"),
        (2, "price =", "upsert", "bob", 6, None),
        (3, "price = 3", "upsert", None, 7, None),
        (4, "price = 4", "upsert", "dan", 8, "never"),
        (5, None, "delete", "eve", 9, None),
        (6, "price = 6", "upsert", "fay", 9, "2030-01-01T12:00"),
    ]
    frame = spark.createDataFrame(
        rows, "id long, condition string, op string, owner string, n int, ends string"
    )
    options = {"op": "op", "payload": ["owner", "n"], "expires": "ends"}
    report = rs.ingest(frame.repartition(2), schema, tmp_path / "store", **options)
    store = rc.Store.open(tmp_path / "store")
    assert (report.accepted, report.rejected_rows) == (3, 2)
    found = store.index().payload([1, 3, 6]).to_pylist()
    assert found == [{"owner": "ann", "n": 5}, {"owner": None, "n": 7}, {"owner": "fay", "n": 9}]
    assert store.expires_at([1, 3, 6]).tolist() == [1924992000000000, 0, 1893499200000000]
    assert [row["reason"] for row in report.rejected.where("id = '4'").collect()] == [
        "expires: 'expires' is a timestamp, got the string 'never'"
    ]
    bounds = spark.createDataFrame([(9, 3, 4, "z")], "id long, price_low int, price_high int, symbol string")
    rs.ingest(bounds, schema, store, payload=["symbol"])
    assert store.index().payload([9], ["symbol", "owner"]).to_pylist() == [{"symbol": "z", "owner": None}]
    assert store.index().match_one({"price": 3}).tolist() == [3, 9]
    owners = rs.payload(spark, store, ["owner", "n"]).orderBy("subscription_id").collect()
    assert [tuple(row) for row in owners] == [(1, "ann", 5), (3, None, 7), (6, "fay", 9), (9, None, None)]
    assert store.delete(where="n > 5 or symbol = 'z'") == [3, 6, 9]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"payload": ["team"]}, "payload: there is no column 'team'"),
        ({"payload": ["map"]}, "payload: the column 'map' must have strings, numbers, .*, got array<int>"),
        ({"expires": "team"}, "expires: there is no column 'team'"),
        ({"expires": "map"}, "expires: the column 'map' must have times, got array<int>"),
    ],
)
def test_what_cannot_be_kept_is_refused_at_once(spark, schema, tmp_path, options, message):
    frame = spark.createDataFrame([], "id long, condition string, map array<int>")
    with pytest.raises(rc.SubscriptionError, match=message):
        rs.ingest(frame, schema, tmp_path / "store", **options)


def test_the_driver_parses_what_is_small_as_workers_do(spark, tmp_path, monkeypatch):
    module = importlib.import_module("rangecast.spark.ingest")
    rows = [(i % 200, f"price * 2 > {i} and symbol != 'S{i % 7}'", "upsert", "ann") for i in range(300)]
    rows += [(7, "price >", "upsert", "bob"), (8, None, "delete", None), (None, "price = 1", "upsert", "cy")]
    columns = zip(*rows, strict=True)
    table = pa.table(dict(zip(("id", "condition", "op", "user.name"), map(list, columns), strict=True)))
    pq.write_table(table, tmp_path / "alerts.parquet", row_group_size=100)
    frame = spark.read.parquet(str(tmp_path / "alerts.parquet"))
    jobs = []
    monkeypatch.setattr(module, "map_arrow", lambda *args: jobs.append(args) or map_arrow(*args))
    map_arrow = importlib.import_module("rangecast.spark.output").map_arrow
    found = {}
    inputs = importlib.import_module("rangecast.spark.ingest")
    ways = {
        "file": {},
        "driver": {"file_rows": lambda frame, plan: None},
        "bytes": {"SMALL_BYTES": 0},
        "rows": {"SMALL_ROWS": 302},
    }
    for name, limit in ways.items():
        schema = rc.Schema(rc.Int("price"), rc.Category("symbol"))  # each learns the words by itself
        with monkeypatch.context() as limited:
            for key, value in limit.items():
                limited.setattr(inputs, key, value)
            report = rs.ingest(frame, schema, tmp_path / name, op="op", payload=["user.name"])
        store = rc.Store.open(tmp_path / name)
        counts = report.rows, report.accepted, report.deleted, report.superseded
        rejected = sorted(map(str, report.rejected.collect()))
        # workers need a pass, and a version, for the words; which word has which code is nobody's business
        words = set(store.schema["symbol"].vocabulary.words()), store.schema.hidden_names()
        own = store.subscriptions().payload.to_pylist()
        events = [{"price": k, "symbol": f"S{k % 9}"} for k in range(0, 320, 7)]
        matches = list(map(sorted, map(list, store.index().match(rc.Events.from_rows(store.schema, events)))))
        found[name] = counts, rejected, words, own, matches, texts(store), (report.version, len(jobs))
        jobs.clear()
    assert found["driver"][0] == (303, 199, 1, 101)
    assert len(found["driver"][1]) == 2
    assert [found[name][-1] for name in found] == [(1, 0), (1, 0), (2, 2), (2, 2)]
    assert all(found[name][:-1] == found["driver"][:-1] for name in found)


def test_words_of_another_writer_while_the_driver_parses(spark, schema, tmp_path, monkeypatch):
    module = importlib.import_module("rangecast.spark.ingest")
    store = rc.Store.open(tmp_path / "store", schema)
    parsed, calls = module.parsed, []

    def overtaken(*args, **options):
        calls.append(args)
        if len(calls) == 1:
            other = rc.Store.open(tmp_path / "store")
            other.insert(rc.Subscriptions.parse(other.schema, {9: "symbol = 'theirs'"}))
        yield from parsed(*args, **options)

    monkeypatch.setattr(module, "parsed", overtaken)
    texts = ["symbol = 'ours'", "symbol != 'theirs'", "symbol ="]
    frame = spark.createDataFrame(pa.table({"id": [1, 2, 3], "condition": texts}))
    report = rs.ingest(frame, None, store)
    assert (len(calls), report.accepted, report.rejected_rows, report.rejected.count()) == (2, 2, 1, 1)
    index = rc.Store.open(tmp_path / "store").index()
    found = {word: sorted(index.match_one({"symbol": word}).tolist()) for word in ("ours", "theirs", "no")}
    assert found == {"ours": [1, 2], "theirs": [9], "no": [2]}


def test_which_inputs_are_known_to_be_small(spark, tmp_path):
    collect = importlib.import_module("rangecast.spark.ingest").collect_small
    table = pa.table({"id": [1, 2, 3], "condition": ["a", "b", "c"]})
    pq.write_table(table, tmp_path / "alerts.parquet")
    files = spark.read.parquet(str(tmp_path / "alerts.parquet"))
    known = [files, files.where("id > 1").select("id").orderBy("id"), spark.createDataFrame(table)]
    for frame in known:
        assert collect(frame, "order").num_rows == frame.count()
    assert collect(files, "order").drop_columns(["order"]).to_pylist() == table.to_pylist()
    for frame in (
        files.mapInArrow(lambda batches: batches, files.schema),
        files.selectExpr("explode(sequence(1, id)) id"),
        files.crossJoin(files.select("id").toDF("other")),
    ):
        assert collect(frame, "order") is None


def test_a_file_read_here_is_what_spark_reads(spark, tmp_path):
    inputs = importlib.import_module("rangecast.spark.ingest")
    moment = dt.datetime(2026, 1, 31, 10, 0, 0, 5)
    columns = {
        "id": pa.array([1, None, 3], pa.int32()),
        "big.id": pa.array([1, 2, None], pa.uint32()),
        "texts": pa.array(["a", None, "é"]).dictionary_encode(),
        "long texts": pa.array(["a", "", None], pa.large_string()),
        "share": pa.array([0.5, float("nan"), None], pa.float32()),
        "flag": [True, None, False],
        "day": pa.array([moment.date(), None, dt.date(1500, 1, 1)]),
        "at": pa.array([moment, None, moment], pa.timestamp("us", "Europe/Berlin")),
        "local": pa.array([moment, None, moment], pa.timestamp("ms")),
    }
    pq.write_table(pa.table(columns), tmp_path / "a file.parquet")
    frame = spark.read.parquet(str(tmp_path / "a file.parquet"))

    def here(frame):
        return inputs.file_rows(frame, frame._jdf.queryExecution().optimizedPlan())

    renamed = frame.toDF(*(f"c{i}" for i in range(len(columns))))
    assert str(here(frame).to_pylist()) == str(renamed.toArrow().rename_columns(list(columns)).to_pylist())
    assert here(frame).schema.types == renamed.toArrow().schema.types
    assert here(frame.where("id = 1")) is None
    assert here(spark.createDataFrame(pa.table({"id": [1]}))) is None
    frame.select("id", "flag").write.partitionBy("flag").parquet(str(tmp_path / "parts"))
    assert here(spark.read.parquet(str(tmp_path / "parts"))) is None
    pq.write_table(pa.table({"id": [1], "more": [[1]]}), tmp_path / "lists.parquet")
    assert here(spark.read.parquet(str(tmp_path / "lists.parquet"))) is None
    frame.select("at").write.parquet(str(tmp_path / "spark"))  # not written by Arrow
    (written,) = (tmp_path / "spark").glob("*.parquet")
    assert here(spark.read.parquet(str(written))) is None
