"""Matching DataFrames on Spark: the same pairs as in process, and clear refusals."""

import datetime as dt
import decimal
import itertools
import threading

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

import rangecast as rc
from rangecast import workloads
from strategies import int_schema, random_events, random_subscriptions

pytestmark = pytest.mark.spark
rs = pytest.importorskip("rangecast.spark")


def frame_of(spark, events, ids=None):
    """Events as a DataFrame; MISSING becomes null."""
    n = len(events)
    columns = {"id": pa.array(ids if ids is not None else np.arange(n) + 1000)}
    for name in events.schema.names:
        columns[name] = pa.array([events.value(name, e) for e in range(n)])
    return spark.createDataFrame(pa.table(columns))


def pairs_of(frame):
    return sorted((row[0], row[1]) for row in frame.collect())


def expected_pairs(subs, events, first=1000):
    index = rc.open_index("scan", subs.schema)
    index.insert(subs)
    rows, ids = index.match(events).pairs()
    return sorted(zip((rows + first).tolist(), ids.tolist(), strict=True))


@pytest.fixture(scope="module")
def small():
    schema = int_schema(3)
    return random_subscriptions(schema, 300, seed=1, boxes=2, bounded=0.97), random_events(
        schema, 900, seed=2
    )


@pytest.fixture(scope="module")
def events_frame(spark, small):
    return frame_of(spark, small[1]).repartition(3)


def test_pairs_are_those_of_the_library(small, events_frame, tmp_path):
    subs, events = small
    expected = expected_pairs(subs, events)
    assert len(expected) > 1000
    assert pairs_of(rs.match(events_frame, subs)) == expected
    store = rc.Store.open(tmp_path / "store", subs.schema, index="direct")
    store.insert(subs)
    assert pairs_of(rs.match(events_frame, store)) == expected
    assert pairs_of(rs.match(events_frame, str(store.path))) == expected
    store.delete(subs.ids)
    assert pairs_of(rs.match(events_frame, store)) == []
    assert pairs_of(rs.match(events_frame, store, version=1)) == expected


def test_forms_and_outer(small, events_frame):
    subs, events = small
    expected = expected_pairs(subs, events)
    by_event = {}
    for event, subscription in expected:
        by_event.setdefault(event, []).append(subscription)
    everyone = range(1000, 1000 + len(events))
    assert len(by_event) < len(events)
    lists = {
        r.event_id: sorted(r.subscription_ids) for r in rs.match(events_frame, subs, form="lists").collect()
    }
    assert lists == by_event
    lists = rs.match(events_frame, subs, form="lists", outer=True).collect()
    assert {r.event_id: sorted(r.subscription_ids) for r in lists} == {
        e: by_event.get(e, []) for e in everyone
    }
    counts = rs.match(events_frame, subs, form="counts").collect()
    assert {r.event_id: r.matches for r in counts} == {e: len(ids) for e, ids in by_event.items()}
    counts = rs.match(events_frame, subs, form="counts", outer=True).collect()
    assert {r.event_id: r.matches for r in counts} == {e: len(by_event.get(e, [])) for e in everyone}
    pairs = rs.match(events_frame, subs, outer=True).collect()
    alone = {r.event_id for r in pairs if r.subscription_id is None}
    assert alone == set(everyone) - set(by_event)
    assert sorted((r[0], r[1]) for r in pairs if r[1] is not None) == expected


def test_kept_columns_and_string_ids(spark):
    schema = rc.Schema(rc.Category("symbol"), rc.Float("change"), rc.Timestamp("at"))
    subs = rc.Subscriptions.parse(
        schema,
        {
            "drop": "change < -0.05",
            "late": "at >= '2026-01-02T00:00:00Z' and symbol != 'IBM'",
            "none": "symbol is missing",
        },
    )
    day = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    table = pa.table(
        {
            "key": ["a", "b", "c", "d"],
            "symbol": ["IBM", "new", None, "HAL"],
            "change": [-0.1, float("nan"), None, 0.0],
            "at": pa.array([day, day, day, day - dt.timedelta(microseconds=1)], pa.timestamp("us", "UTC")),
            "note": ["x", "y", None, "z"],
        }
    )
    events = spark.createDataFrame(table)
    found = rs.match(events, subs, event_id="key", keep=["note", "symbol"])
    assert found.columns == ["event_id", "subscription_id", "note", "symbol"]
    assert sorted(map(tuple, found.collect())) == [
        ("a", "drop", "x", "IBM"),
        ("b", "late", "y", "new"),
        ("c", "none", None, None),
    ]
    lists = {r[0]: r[1] for r in rs.match(events, subs, event_id="key", form="lists", outer=True).collect()}
    assert lists == {"a": ["drop"], "b": ["late"], "c": ["none"], "d": []}


def test_an_attribute_without_a_column(spark):
    schema = rc.Schema(rc.Int("price"), rc.Int("volume"))
    subs = rc.Subscriptions.parse(schema, {1: "price > 5", 2: "volume > 5", 3: "volume is missing"})
    events = spark.createDataFrame([(1, 9)], "id long, price int")
    assert pairs_of(rs.match(events, subs, absent=["volume"])) == [(1, 1), (1, 3)]


GOOD = "id long, price int, symbol string"


@pytest.mark.parametrize(
    ("columns", "arguments", "message"),
    [
        ("id long, price int", {}, r"no column 'symbol' \(category\); they have id, price"),
        ("id long, price int", {}, r"say absent=\['symbol'\]"),
        ("id long, price double, symbol string", {}, "'price' must be byte, short, int or long for an int"),
        ("id long, price string, symbol string", {}, "'price' must be .* got string; cast it first"),
        (
            "id long, price int, symbol int",
            {},
            "'symbol' must be string, boolean or an array of strings for a category, got int",
        ),
        ("key long, price int, symbol string", {}, "event_id: the events have no column 'id'; they have key"),
        (GOOD, {"keep": ["x"]}, "keep: the events have no column 'x'"),
        (GOOD, {"keep": "price"}, "keep must be a list"),
        (GOOD, {"form": "rows"}, "form must be one of pairs, lists, counts"),
        (GOOD, {"absent": ["x"]}, "absent: the schema has no attribute 'x'"),
        (GOOD, {"absent": ["price", "symbol"]}, "must have a column of the schema"),
        (GOOD, {"order": "longest"}, "order must be None or 'shortest-first'"),
        (GOOD, {"id_type": "string"}, "id_type goes with the reader of files"),
        (GOOD, {"mode": "half"}, "mode must be one of auto, whole, stripes"),
        (GOOD, {"stripes": 1}, "stripes must be at least 2"),
        (GOOD, {"version": 1}, "version= goes with a store"),
        (GOOD + ", event_id int", {"keep": ["event_id"]}, "columns of the answer must differ"),
    ],
)
def test_what_is_refused_at_once(spark, columns, arguments, message):
    schema = rc.Schema(rc.Int("price"), rc.Category("symbol"))
    subs = rc.Subscriptions.parse(schema, {1: "price > 5"})
    events = spark.createDataFrame([], columns)
    with pytest.raises(rc.RangecastError, match=message):
        rs.match(events, subs, **arguments)


def test_a_damaged_snapshot_is_refused_at_once(spark, small, events_frame, tmp_path):
    index = rc.open_index("scan", small[0].schema)
    index.insert(small[0])
    path = tmp_path / "saved.index"
    index.save(path)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(rc.StorageError, match="is damaged"):
        rs.match(events_frame, path)
    with pytest.raises(rc.StorageError, match="there is no store and no saved index here"):
        rs.match(events_frame, tmp_path / "nothing")
    with pytest.raises(rc.OptionError, match="subscriptions must be a Store"):
        rs.match(events_frame, 17)


def test_types_that_hold_an_attribute(spark):
    schema = rc.Schema(rc.Int("a"), rc.Float("b"), rc.Category("c"), rc.Timestamp("t"))
    subs = rc.Subscriptions.parse(schema, {1: "a = 3 and b = 2.5 and c = 'true' and t = '2026-01-02'"})
    row = (1, 3, decimal.Decimal("2.5"), True, dt.date(2026, 1, 2))
    events = spark.createDataFrame([row], "id long, a byte, b decimal(10,2), c boolean, t date")
    assert pairs_of(rs.match(events, subs)) == [(1, 1)]


def test_the_report_counts_as_rows_pass(small, events_frame):
    subs, events = small
    report = rs.Report()
    found = rs.match(events_frame, subs, report=report)
    n = len(found.collect())
    assert report.observed() == {"events": len(events), "rejected": 0, "rows": n}
    assert report.subscriptions == len(subs)


def test_what_is_counted_before_an_action_ends_with_an_error(small, events_frame):
    report = rs.Report()
    found = rs.match(events_frame, small[0], report=report)
    with pytest.raises(rc.OptionError, match=r"observed.. needs an action that has ended on what match"):
        report.observed(timeout=0.2)
    n = len(found.collect())
    assert report.observed()["rows"] == n


def test_a_path_is_no_frame(spark, small, tmp_path):
    subs = small[0]
    for call in (rs.match, rs.explain):
        with pytest.raises(
            TypeError, match=r"DataFrame of Spark, got the string 'a.parquet'; .* rs.match_files"
        ):
            call("a.parquet", subs)
    with pytest.raises(
        TypeError, match=r"match takes a DataFrame of Spark, got pyarrow.Table; read files with spark.read"
    ):
        rs.match(pa.table({"id": [1]}), subs)
    for call in (rs.match_stream, rs.track):
        keywords = {"key": "id", "time": "at"} if call is rs.track else {}
        with pytest.raises(
            TypeError, match=r"takes a DataFrame of Spark, got the string 'a'; .* spark.readStream"
        ):
            call("a", tmp_path / "store", checkpoint=tmp_path / "state", **keywords)
    with pytest.raises(
        TypeError, match=r"ingest takes a DataFrame of Spark, got pathlib.PosixPath; read files with"
    ):
        rs.ingest(tmp_path, subs.schema, tmp_path / "store")
    with pytest.raises(
        TypeError, match=r"reduce takes a DataFrame of Spark, got the string 'a.csv'; read files"
    ):
        rs.reduce("a.csv", subs.schema)


def test_a_stream_is_refused(spark, small, tmp_path):
    """What match gives stays at one version, which a stream would be matched against for ever."""
    ticks = spark.readStream.format("rate").load().selectExpr("value as id", "1 as a0", "2 as a1", "3 as a2")
    for call in (rs.match, rs.explain):
        with pytest.raises(rc.EventError, match=r"is not streaming; rs.match_stream takes a streaming one"):
            call(ticks, small[0])


def test_explain_says_where_the_index_goes(small, events_frame, capsys):
    text = rs.explain(events_frame, small[0])
    assert "whole: the index has" in text
    assert repr(text) == str(text)  # a prompt shows the lines, and once
    assert capsys.readouterr().out == ""
    text = rs.explain(events_frame, small[0], memory=20_000)
    assert "stripes: the index has" in text
    assert "copies" in text


@pytest.mark.parametrize("n", [2, 6])
def test_stripes_give_the_same_pairs(spark, small, events_frame, tmp_path, n):
    subs, events = small
    store = rc.Store.open(tmp_path / "store", subs.schema, index="scan")
    store.insert(subs)
    expected = expected_pairs(subs, events)
    assert pairs_of(rs.match(events_frame, store, mode="stripes", stripes=n)) == expected
    # the second time the stripes are there
    built = sorted(p.stat().st_mtime_ns for p in store.path.rglob("*.stripes-*/*.index"))
    lists = rs.match(events_frame, store, mode="stripes", stripes=n, form="counts").collect()
    assert sum(r.matches for r in lists) == len(expected)
    assert built == sorted(p.stat().st_mtime_ns for p in store.path.rglob("*.stripes-*/*.index"))


@pytest.mark.parametrize("name", ["stock-alerts", "lonlat", "predicates-16"])
def test_workloads_match_as_in_process(spark, name):
    drawn = workloads.workload(name, n_subscriptions=2_000, n_events=1_000)
    table = {"id": pa.array(np.arange(1000, 1000 + drawn.n_events))}
    for attribute in drawn.schema:
        column = drawn.columns[attribute.name]
        given = pa.array(column, from_pandas=True)
        if isinstance(attribute, rc.Int) and pa.types.is_floating(given.type):
            given = given.cast(pa.int64())
        table[attribute.name] = given
    frame = spark.createDataFrame(pa.table(table))
    expected = expected_pairs(drawn.subscriptions(), drawn.events())
    assert len(expected) > 10
    assert pairs_of(rs.match(frame, drawn.subscriptions())) == expected
    assert pairs_of(rs.match(frame, drawn.subscriptions(), mode="stripes", stripes=3)) == expected


def test_one_output_for_every_mode(spark, small, tmp_path):
    """match, keywords, files, SQL, the source and explain give the same, in the same order."""
    subs, events = small[0], random_events(small[0].schema, 200, seed=5)
    store = rc.Store.open(tmp_path / "store", subs.schema, index="direct")
    store.insert(subs)
    frame = frame_of(spark, events).coalesce(1)
    output = rs.Output(form="counts", outer=True, keep=["a0"], order="shortest-first")
    found = [tuple(row) for row in rs.match(frame, store, output).collect()]
    index = store.index()
    expected = {1000 + e: (int(n), events.value("a0", e)) for e, n in enumerate(index.match(events).counts)}
    assert {row[0]: row[1:] for row in found} == expected
    assert [row[0] - 1000 for row in found] == index.estimate(events).order.tolist() != list(range(200))
    keywords = {"form": "counts", "outer": True, "keep": ["a0"], "order": "shortest-first"}
    assert [tuple(row) for row in rs.match(frame, store, **keywords).collect()] == found
    assert [row[:2] for row in rs.match(frame, store, output, keep=()).collect()] == [r[:2] for r in found]
    frame.write.parquet(str(tmp_path / "events"))
    rs.match_files(spark, tmp_path / "events", store, tmp_path / "out", output)
    assert [tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).collect()] == found
    rs.register_source(spark)
    reader = spark.read.format("rangecast").option("store", str(store.path)).options(**output.options())
    assert [tuple(row) for row in reader.load(str(tmp_path / "events")).collect()] == found
    rs.register_sql(spark, "tally", output)
    frame.createOrReplaceTempView("tallied")
    for name, kind in (("tally", str), ("tally_long", int)):
        rows = spark.sql(f"SELECT * FROM {name}(TABLE(tallied), '{store.path}')").collect()
        texts = [(kind(e), n, None if a0 is None else str(a0)) for e, n, a0 in found]
        assert [tuple(row) for row in rows] == texts
    assert "columns out    event_id, matches, a0" in rs.explain(frame, store, output)
    with pytest.raises(rc.RangecastError, match="cannot estimate the work of an event"):
        rs.match(frame, _without_estimates(subs.schema), output)


def _without_estimates(schema):
    index = rc.open_index("islist", schema)
    index.insert(random_subscriptions(schema, 600, seed=3))
    return index


def test_sql(spark, small, events_frame, tmp_path):
    subs, events = small
    store = rc.Store.open(tmp_path / "store", subs.schema, index="scan")
    store.insert(subs)
    store.snapshot()
    rs.register_sql(spark)
    events_frame.createOrReplaceTempView("events")
    found = spark.sql(f"SELECT * FROM match_events_long(TABLE(events), '{store.path}')")
    expected = expected_pairs(subs, events)
    assert pairs_of(found) == expected
    found = spark.sql(f"SELECT * FROM match_events(TABLE(events), '{store.path}', 'id')")
    assert pairs_of(found) == sorted((str(a), str(b)) for a, b in expected)


def test_names_with_dots_and_paths_into_structs(spark, tmp_path):
    schema = rc.Schema(rc.Int("order.price"), rc.Category("a.b"), rc.Int("order.by.desk"))
    conditions = {7: '"order.price" > 10 and "a.b" = \'x\'', 8: '"order.by.desk" = 3'}
    store = rc.Store.open(tmp_path / "store", schema)
    store.insert(rc.Subscriptions.parse(schema, conditions))
    rows = [
        {"my.id": 1, "a.b": "x", "order": {"price": 12, "by": {"desk": 3}}},
        {"my.id": 2, "a.b": "y", "order": {"price": 12, "by": {"desk": 4}}},
        {"my.id": 3, "a.b": "x", "order": None},
    ]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows))
    found = rs.match(frame, store, event_id="my.id", keep=["order.price"])
    assert found.columns == ["event_id", "subscription_id", "order.price"]
    assert sorted(map(tuple, found.collect())) == [(1, 7, 12), (1, 8, 12)]
    stripes = rs.match(frame, store, event_id="my.id", keep=["order.price"], mode="stripes", stripes=2)
    assert sorted(map(tuple, stripes.collect())) == [(1, 7, 12), (1, 8, 12)]
    with pytest.raises(rc.EventError, match=r"no column 'order.cost'; they have my.id, a.b, order$"):
        rs.match(frame, store, event_id="my.id", keep=["order.cost"])


def test_keep_all(spark, small, events_frame, tmp_path):
    subs, events = small
    found = rs.match(events_frame, subs, keep="*")
    assert found.columns == ["event_id", "subscription_id", "a0", "a1", "a2"]
    assert pairs_of(found) == expected_pairs(subs, events)
    events_frame.coalesce(1).write.parquet(str(tmp_path / "events"))
    report = rs.match_files(
        spark, tmp_path / "events", subs_store(subs, tmp_path), tmp_path / "out", keep="*"
    )
    assert spark.read.parquet(report.out).columns == found.columns
    (tmp_path / "e.jsonl").write_text('{"id": 1, "a0": 1}\n')
    with pytest.raises(rc.OptionError, match="lines of JSON do not say"):
        rs.match_files(
            spark,
            tmp_path / "e.jsonl",
            subs_store(subs, tmp_path),
            tmp_path / "more",
            keep="*",
            absent=["a1", "a2"],
        )


def subs_store(subs, folder):
    store = rc.Store.open(folder / "kept", subs.schema)
    if not len(store):
        store.insert(subs)
    return store


def test_sql_refuses_before_a_job_runs(spark, small, events_frame, tmp_path):
    store = subs_store(small[0], tmp_path)
    rs.register_sql(spark)
    events_frame.createOrReplaceTempView("events")
    for arguments, said in (
        (f"TABLE(events), '{store.path}', 'key'", "no column 'key'"),
        (f"TABLE(events), '{tmp_path}/nowhere'", "nowhere"),
        (f"TABLE(SELECT id, a0 FROM events), '{store.path}'", "no column 'a1'"),
    ):
        with pytest.raises(AnalysisException) as error:
            spark.sql(f"SELECT * FROM match_events({arguments})").schema  # noqa: B018 - not even collected
        assert said in str(error.value)


def test_a_query_has_one_version_while_the_store_changes(spark, tmp_path):
    """All equal events of a query get one answer, with a writer beside it, and workers write nothing."""
    schema = rc.Schema(rc.Int("price"))
    store = rc.Store.open(tmp_path / "store", schema)
    store.insert(rc.Subscriptions.parse(schema, {0: "price > 5"}))
    rs.register_sql(spark, "tell", form="counts")
    spark.range(4_000).selectExpr("id", "9 as price").repartition(8).createOrReplaceTempView("same")
    query = f"SELECT * FROM tell_long(TABLE(same), '{store.path}')"
    planned = spark.sql(query)
    planned.schema  # noqa: B018 - over Connect a query is planned when it is asked for something
    connect = "connect" in type(planned).__module__
    began, stop, trouble = threading.Event(), threading.Event(), []

    def write():
        beside = rc.Store.open(store.path)
        try:
            for k in itertools.count(1):
                beside.insert(rc.Subscriptions.parse(schema, {k: "price > 5"}))
                if k == 3:
                    began.set()
                if stop.wait(0.005):
                    break
        except Exception as error:
            trouble.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert began.wait(60)
        snapshots = store.snapshots()
        counts = {row.matches for row in planned.collect()}
        assert len(counts) == 1
        if not connect:
            assert counts == {1}
            assert store.snapshots() == snapshots
        version = rc.Store.open(store.path).version
        later = [{row.matches for row in spark.sql(query).collect()} for _ in range(3)]
        assert all(len(found) == 1 for found in later)
        numbers = [found.pop() for found in later]
        assert version <= numbers[0] <= numbers[1] <= numbers[2]
    finally:
        stop.set()
        writer.join()
    assert trouble == []


def test_sql_takes_a_constant_store(spark, tmp_path):
    schema = rc.Schema(rc.Int("price"))
    store = rc.Store.open(tmp_path / "store", schema)
    store.insert(rc.Subscriptions.parse(schema, {0: "price > 5"}))
    rs.register_sql(spark)
    spark.range(2).selectExpr("id", "9 as price").createOrReplaceTempView("two")
    start, end = str(store.path)[:3], str(store.path)[3:]
    found = spark.sql(f"SELECT * FROM match_events_long(TABLE(two), concat('{start}', '{end}'))")
    assert pairs_of(found) == [(0, 0), (1, 0)]
    for arguments in ("NULL", f"'{store.path}', CAST(NULL AS STRING)"):
        with pytest.raises(AnalysisException) as error:
            spark.sql(f"SELECT * FROM match_events(TABLE(two), {arguments})").schema  # noqa: B018
        assert "must be a constant, so that a query has one version" in str(error.value)
