"""One rule at every door of Spark: what a place is, what a null means, whose column differs in capitals."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException

import rangecast as rc

pytestmark = pytest.mark.spark
rs = pytest.importorskip("rangecast.spark")
from rangecast.spark.source.options import read_options  # noqa: E402

SCHEMA = rc.Schema(
    rc.Int("x"), rc.Float("f"), rc.Category("c"), rc.Text("s"), rc.Tags("tags"), rc.Point("p"), rc.Bool("b"),
    rc.Timestamp("t"), rc.Timestamp("u", unit="s"),
)  # fmt: skip
PRICE = rc.Schema(rc.Int("price"))


def rows_of(frame):
    return sorted(map(tuple, frame.collect()))


@pytest.fixture
def prices(tmp_path):
    store = rc.Store.open(tmp_path / "prices", PRICE)
    store.insert(rc.Subscriptions.parse(PRICE, {1: "price > 5", 2: "price is missing", 3: "price = 9"}))
    store.snapshot()
    return store


def drained(query):
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def test_a_place_means_the_same_at_every_door(spark, prices, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events").mkdir()
    pq.write_table(pa.table({"id": [4], "price": [7]}), tmp_path / "events" / "e.parquet")
    frame = spark.read.parquet(str(tmp_path / "events"))
    texts = spark.createDataFrame([(8, "price < 3")], "id long, condition string")
    before = sorted(tmp_path.iterdir())
    ticks = rs.read_events(spark, tmp_path / "events", PRICE)
    for place in ("dbfs:/x", "hdfs:/x", "wasbs://a/x"):
        for door in (
            lambda at: rs.match(frame, at),
            lambda at: rs.explain(frame, at),
            lambda at: rs.ingest(texts, PRICE, at),
            lambda at: rs.match_files(spark, at, prices, tmp_path / "out"),
            lambda at: rs.match_files(spark, tmp_path / "events", prices, at),
            lambda at: rs.match_files(spark, tmp_path / "events", at, tmp_path / "out"),
            lambda at: rs.match_stream(ticks, at, out=tmp_path / "out", checkpoint=tmp_path / "state"),
            lambda at: rs.match_stream(ticks, prices, out=at, checkpoint=tmp_path / "state"),
            lambda at: rs.match_stream(ticks, prices, out=tmp_path / "out", checkpoint=at),
            lambda at: rs.match_stream(ticks, prices, sink="console", checkpoint=tmp_path / "s", rejects=at),
            lambda at: rs.read_events(spark, at, PRICE),
            lambda at: rs.read_matches(spark, at),
            lambda at: rs.read_rejects(spark, at),
            rs.committed,
        ):
            with pytest.raises(rc.OptionError, match="an address must begin with s3://"):
                door(place)
    # by itself, since Spark starts a process for each of these
    for option in ("store", "events", "state", "rejects"):
        given = {"store": str(prices.path), "events": str(tmp_path / "events")} | {option: "dbfs:/x"}
        with pytest.raises(rc.OptionError, match="an address must begin with s3://"):
            read_options(given)
    rs.register_source(spark)
    given = {"store": "s3://bucket/store", "events": str(tmp_path / "events")}
    with pytest.raises(
        AnalysisException, match="'store' must be a file or folder of this machine, got s3://bucket"
    ):
        spark.read.format("rangecast").options(**given).load().schema  # noqa: B018
    assert sorted(tmp_path.iterdir()) == before
    url = tmp_path.as_uri()
    assert rows_of(rs.match(frame, f"{url}/prices")) == [(4, 1)]
    rs.match_files(spark, f"{url}/events", f"{url}/prices", f"file:{tmp_path}/found")
    assert rows_of(spark.read.parquet(str(tmp_path / "found"))) == [(4, 1)]
    drained(rs.match_stream(ticks, f"{url}/prices", out=f"{url}/streamed", checkpoint=f"{url}/state"))
    assert rows_of(rs.read_matches(spark, f"{url}/streamed")) == [(4, 1, 0)]
    assert (tmp_path / "streamed" / "batch_id=0").is_dir()
    assert rs.ingest(texts, PRICE, f"{url}/prices").accepted == 1


def test_a_column_of_nulls_alone_is_missing(spark, tmp_path):
    """A quiet hour has no value at all, and must not stop a nightly job: of no attribute and at no door."""
    names = SCHEMA.names
    missing = " and ".join(f"{name} is missing" for name in names)
    store = rc.Store.open(tmp_path / "store", SCHEMA)
    texts = {0: missing, 99: "x > 5 or f < 2 or c = 'a' or b = true"}
    texts |= {k: f"{name} is present" for k, name in enumerate(names, 1)}
    store.insert(rc.Subscriptions.parse(SCHEMA, texts))
    store.snapshot()
    wanted = [(5, 0), (6, 0)]
    nulls = pa.table({"id": [5, 6], **{name: pa.nulls(2) for name in names}})
    index = store.index()
    found, ids = index.match(rc.Events.from_arrow(SCHEMA, nulls)).pairs()
    assert list(zip(found.tolist(), ids.tolist(), strict=True)) == [(0, 0), (1, 0)]
    voids = ", ".join(f"null as {name}" for name in names)
    frame = spark.sql(f"select id + 5 as id, {voids}, null as note from range(2)")
    assert {field.dataType.simpleString() for field in frame.schema.fields[1:]} == {"void"}
    assert rows_of(rs.match(frame, store)) == wanted
    assert rows_of(rs.match(frame, store, mode="stripes", stripes=2)) == wanted
    assert rows_of(rs.match(frame, store, keep=["note"])) == [(*row, None) for row in wanted]
    rs.register_sql(spark)
    frame.createOrReplaceTempView("quiet")
    assert rows_of(spark.sql(f"SELECT * FROM match_events_long(TABLE(quiet), '{store.path}')")) == wanted
    pq.write_table(nulls, tmp_path / "quiet.parquet")
    report = rs.match_files(spark, tmp_path / "quiet.parquet", store, tmp_path / "out", keep=["x"])
    assert (report.pairs, report.rejected_rows) == (2, 0)
    assert rows_of(spark.read.parquet(report.out)) == [(*row, None) for row in wanted]
    rs.register_source(spark)
    source = spark.read.format("rangecast").option("store", str(store.path))
    assert rows_of(source.load(str(tmp_path / "quiet.parquet"))) == wanted
    (tmp_path / "arriving").mkdir()
    pq.write_table(nulls, tmp_path / "arriving" / "quiet.parquet")
    ticks = rs.read_events(spark, tmp_path / "arriving", store)
    drained(rs.match_stream(ticks, store, out=tmp_path / "streamed", checkpoint=tmp_path / "state"))
    assert rows_of(rs.read_matches(spark, tmp_path / "streamed")) == [(*row, 0) for row in wanted]


@pytest.mark.parametrize("small", [True, False])
def test_subscriptions_with_columns_of_nulls_alone(spark, tmp_path, small):
    def ingest(columns, **named):
        frame = spark.sql(f"select {columns} from range(2)")
        store = rc.Store.open(tmp_path / f"{len(list(tmp_path.iterdir()))}", PRICE)
        return rs.ingest(frame if small else frame.repartition(2), PRICE, store, **named), store

    good = "id, 'price > 1' as condition, null as n"
    for named in ({"op": "n"}, {"expires": "n"}, {"payload": ["n"]}):
        report, store = ingest(good, **named)
        assert (report.accepted, report.rejected_rows, len(store.index())) == (2, 0, 2)
    assert rows_of(rs.payload(spark, store)) == [(0, None), (1, None)]
    more = spark.sql("select id + 5 as id, 'price > 1' as condition, 7 as n from range(1)")
    rs.ingest(more, PRICE, store, payload=["n"])
    assert sorted(rows_of(rs.payload(spark, store)), key=str) == [(0, None), (1, None), (5, 7)]
    report, _ = ingest("id, null as price_low, 5 as price_high")
    assert report.accepted == 2
    for columns, named, reason in (
        ("id, null as condition", {}, "a condition must be a string, got null"),
        (good, {"sequence": "n"}, "the sequence 'n' must not be null"),
        ("null as id, 'price > 1' as condition", {}, "a subscription must have an id, got null"),
    ):
        report, _ = ingest(columns, **named)
        assert [row.reason for row in report.rejected.collect()] == [reason] * 2


def test_an_event_without_an_id_is_rejected_at_every_door(spark, prices, tmp_path):
    """It matches nothing, and where something counts, it is counted as rejected."""
    frame = spark.sql("select if(id = 1, null, id) as id, 9 as price from range(3)")
    wanted = [(0, 1), (0, 3), (2, 1), (2, 3)]
    for options in ({}, {"mode": "stripes", "stripes": 2}, {"outer": True}):
        report = rs.Report()
        assert rows_of(rs.match(frame, prices, report=report, **options)) == wanted
        assert report.observed() == {"events": 3, "rejected": 1, "rows": 4}
    counts = rs.match(frame, prices, form="counts", outer=True)
    assert rows_of(counts) == [(0, 2), (2, 2)]
    nobody = spark.sql("select null as id, 9 as price from range(3)")
    report = rs.Report()
    assert rows_of(rs.match(nobody, prices, report=report)) == []
    assert report.observed() == {"events": 3, "rejected": 3, "rows": 0}
    rs.register_sql(spark)
    frame.createOrReplaceTempView("nameless")
    found = spark.sql(f"SELECT * FROM match_events_long(TABLE(nameless), '{prices.path}')")
    assert rows_of(found) == wanted
    (tmp_path / "events").mkdir()
    table = pa.table({"id": [0, None, 2], "price": [9] * 3})
    pq.write_table(table, tmp_path / "events" / "e.parquet")
    report = rs.match_files(spark, tmp_path / "events", prices, tmp_path / "out")
    assert (rows_of(spark.read.parquet(report.out)), report.rejected_rows) == (wanted, 1)
    fields = "id long, price long"
    for name, ticks in (
        ("frame", spark.readStream.schema(fields).parquet(str(tmp_path / "events"))),
        ("files", rs.read_events(spark, tmp_path / "events", PRICE)),
    ):
        out = tmp_path / name
        drained(rs.match_stream(ticks, prices, out=out, checkpoint=tmp_path / f"{name}-state"))
        assert rows_of(rs.read_matches(spark, out)) == [(*row, 0) for row in wanted]
        [commit] = rs.committed(out)
        assert (commit.events, commit.rejected) == (3, 1)
        assert [row.reason for row in rs.read_rejects(spark, out).collect()] == [
            "an event must have an id, got null"
        ]
    with pytest.raises(rc.EventError, match=r"event 1: an event must have an id, got null \(1 of 3 events\)"):
        rc.match(table, prices.index().subscriptions())


def test_files_with_structs(spark, tmp_path):
    """A path leads into them, as it does in a DataFrame."""
    schema = rc.Schema(rc.Float("user.born.year"), rc.Category("c"))
    subs = rc.Subscriptions.parse(
        schema, {1: "user.born.year > 5", 2: "c = 'a'", 3: "user.born.year is missing"}
    )
    store = rc.Store.open(tmp_path / "store", schema)
    store.insert(subs)
    users = [{"born": {"year": 6.0}, "n": 8}, None, {"born": None, "n": 9}]
    table = pa.table({"id": [4, 5, 6], "user": users, "c": ["a", "b", "a"]})
    for k, names in enumerate((["id", "user", "c"], ["id", "User", "C"])):
        (tmp_path / str(k)).mkdir()
        pq.write_table(table.rename_columns(names), tmp_path / str(k) / "e.parquet")
        report = rs.match_files(spark, tmp_path / str(k), store, tmp_path / f"out{k}")
        assert rows_of(spark.read.parquet(report.out)) == [(4, 1), (4, 2), (5, 3), (6, 2), (6, 3)]
    assert rows_of(rs.match(spark.read.parquet(str(tmp_path / "0")), store)) == rows_of(
        spark.read.parquet(report.out)
    )


def test_fields_in_other_capitals_are_named_and_not_said_to_be_absent(spark):
    schema = rc.Schema(rc.Int("user.age"), rc.Int("user.born.year"))
    subs = rc.Subscriptions.parse(schema, {1: "user.age > 5"})
    user = "named_struct('Age', 9, 'born', named_struct('YEAR', 1990))"
    frame = spark.sql(f"select id, {user} as user from range(1)")
    with pytest.raises(
        rc.EventError, match=r"no column 'user.age', but 'user.Age', which differs in capitals"
    ):
        rs.match(frame, subs)
    with pytest.raises(rc.EventError, match=r"but 'user.born.YEAR', which differs in capitals alone: rename"):
        rs.match(frame, subs, absent=["user.age"])


def test_columns_in_other_capitals(spark, prices, tmp_path):
    """They are found as Spark finds columns, unless it is told to tell capitals apart."""
    frame = spark.sql("select id as ID, 9 as Price, 'n' as Note from range(1)")
    wanted = [(0, 1), (0, 3)]
    rs.register_sql(spark)
    frame.createOrReplaceTempView("capitals")
    query = f"SELECT * FROM match_events_long(TABLE(capitals), '{prices.path}')"
    assert rows_of(rs.match(frame, prices)) == wanted
    assert rows_of(rs.match(frame, prices, mode="stripes", stripes=2)) == wanted
    assert rows_of(rs.match(frame, prices, keep=["Price", "note"])) == [(*row, 9, "n") for row in wanted]
    assert rows_of(rs.match(frame, prices, keep=["price"])) == [(*row, 9) for row in wanted]
    assert rows_of(spark.sql(query)) == wanted
    (tmp_path / "events").mkdir()
    pq.write_table(pa.table({"id": [0], "Price": [9]}), tmp_path / "events" / "e.parquet")
    report = rs.match_files(spark, tmp_path / "events", prices, tmp_path / "out")
    assert rows_of(spark.read.parquet(report.out)) == wanted
    ticks = spark.readStream.schema("ID long, PRICE long").parquet(str(tmp_path / "events"))
    drained(rs.match_stream(ticks, prices, out=tmp_path / "streamed", checkpoint=tmp_path / "state"))
    assert rows_of(rs.read_matches(spark, tmp_path / "streamed")) == [(*row, 0) for row in wanted]
    twins = rc.Schema(rc.Int("price"), rc.Int("PRICE"))
    subs = rc.Subscriptions.parse(twins, {1: "price > 5", 2: "PRICE > 5"})
    with pytest.raises(rc.EventError, match=r"no column 'PRICE' \(int\); they have id, price"):
        rs.match(spark.sql("select id, 9 as price from range(1)"), subs)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        message = r"no column 'id', but 'ID', which differs in capitals alone, and spark.sql.caseSensitive is"
        with pytest.raises(rc.EventError, match=message):
            rs.match(frame, prices)
        message = r"no column 'price', but 'Price', which differs in capitals alone"
        with pytest.raises(rc.EventError, match=message):
            rs.match(frame.withColumnRenamed("ID", "id"), prices)
        with pytest.raises(rc.EventError, match="no column 'id', but 'ID', which differs in capitals alone"):
            rs.match_stream(ticks, prices, out=tmp_path / "more", checkpoint=tmp_path / "other")
        rs.register_sql(spark)
        with pytest.raises(AnalysisException, match="which differs in capitals alone"):
            spark.sql(query).schema  # noqa: B018
        both = spark.sql("select id, 9 as Price, 6 as price from range(1)")
        assert rows_of(rs.match(both, prices, keep=["Price"])) == [(0, 1, 9)]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
        rs.register_sql(spark)
