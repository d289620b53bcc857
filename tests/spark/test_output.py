"""What comes out, said once for all modes; without a session of Spark's."""

import dataclasses
import json
import pickle

import pytest

import rangecast as rc

pytestmark = pytest.mark.spark
rs = pytest.importorskip("rangecast.spark")
from pyspark.sql import types as T  # noqa: E402

from rangecast.spark.output import Answer, Output, OutputKeywords  # noqa: E402
from rangecast.spark.stream.ledger import Ledger  # noqa: E402
from rangecast.spark.stream.micro_batch import StreamOptions  # noqa: E402

SCHEMA = rc.Schema(rc.Int("price"), rc.Category("symbol"), rc.Timestamp("at"))
FULL = rs.Output(
    event_id="key", keep=["a,b", "c"], form="lists", outer=True, absent=["at"],
    order="shortest-first", text_ids=True, id_type="string",
)  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"keep": "price"}, "keep must be a list of column names, got the string 'price'"),
        ({"absent": "price"}, "absent must be a list of column names, got the string 'price'"),
        ({"form": "rows"}, "form must be one of pairs, lists, counts, got 'rows'"),
        ({"order": "longest"}, "order must be None or 'shortest-first', got 'longest'"),
        ({"id_type": "int"}, "id_type must be int64 or string, got 'int'"),
        ({"keep": ["a", "a"]}, "columns of the answer must differ, got event_id, subscription_id, a, a"),
        ({"keep": ["matches"], "form": "counts"}, "must differ, got event_id, matches, matches; rename"),
    ],
)
def test_what_cannot_come_out(fields, message):
    with pytest.raises(rc.OptionError, match=message):
        rs.Output(**fields)


def test_keywords_are_folded_into_an_output():
    assert Output.of(None, {}) == rs.Output()
    assert Output.of(None, {"event_id": "key", "keep": ["a"]}) == rs.Output(event_id="key", keep=("a",))
    assert Output.of(FULL, {}) == FULL
    assert Output.of(FULL, {"form": "counts"}) == dataclasses.replace(FULL, form="counts")
    with pytest.raises(TypeError, match="no argument 'shape'; those of an output are event_id, keep"):
        Output.of(None, {"shape": "lists"})
    with pytest.raises(rc.OptionError, match="output must be an Output, got dict"):
        Output.of({"form": "lists"}, {})


def test_the_keywords_are_the_fields_of_an_output():
    # a type checker needs them written out (PEP 692), so only a test can hold both together
    kinds = {field.name: field.type for field in dataclasses.fields(Output)}
    assert OutputKeywords.__annotations__.keys() == kinds.keys()
    assert {name: ref.__forward_arg__ for name, ref in OutputKeywords.__annotations__.items()} == kinds


def test_options_of_a_stream_are_checked_when_they_are_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = StreamOptions("state", out="matches", stripes=2)
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.ledger == Ledger(str(tmp_path / "state"), str(tmp_path / "matches"))
    assert options.deliver is None
    assert StreamOptions("state", sink=print).deliver is print
    for given, message in (
        ({"stripes": 1}, "stripes must be at least 2, got 1"),
        ({"sink": "csv"}, "sink must be 'parquet' or 'console', .* or a function, got 'csv'"),
        ({"sink": 5}, "or a function, got 5"),
        ({"sink": print}, "a function gets the matches instead"),
        ({"out": "s3://b/x", "rejects": "aside"}, "they are in _rejects there, got .*aside"),
        ({"out": None}, "needs a folder for the matches"),
    ):
        with pytest.raises(rc.OptionError, match=message):
            StreamOptions(**{"checkpoint": "state", "out": "matches"} | given)


def test_options_of_the_source_say_the_same():
    for output in (rs.Output(), FULL, dataclasses.replace(FULL, outer=False, text_ids=False)):
        given = {name.lower().replace("_", ""): value for name, value in output.options().items()}
        assert all(isinstance(value, str) for value in given.values())
        assert Output.from_options(given) == output
    with pytest.raises(rc.OptionError, match="outer must be one of false, true, got 'maybe'"):
        Output.from_options({"outer": "maybe"})
    with pytest.raises(rc.OptionError, match="textIds must be one of false, true, got '1'"):
        Output.from_options({"textids": "1"})


def test_an_answer_goes_through_json_and_to_workers():
    answer = FULL.answer(SCHEMA, None)
    assert answer.attributes == ("price", "symbol")
    assert answer.columns == ["key", "price", "symbol", "a,b", "c"]
    assert Answer(**json.loads(json.dumps(dataclasses.asdict(answer)))) == answer
    assert pickle.loads(pickle.dumps(answer)) == answer
    # what is known of the ids counts more than what was said
    assert [FULL.answer(SCHEMA, known).textual for known in (None, True, False)] == [True, True, False]
    assert rs.Output().answer(SCHEMA, None).textual is False


@pytest.mark.parametrize(
    ("form", "kind"), [("pairs", "string"), ("lists", "array<string>"), ("counts", "bigint")]
)
def test_columns_that_come_out(form, kind):
    answer = dataclasses.replace(FULL, form=form).answer(SCHEMA, textual=True)
    names = ["key", "price", "symbol", "a,b", "c"]
    given = T.StructType([T.StructField(name, T.IntegerType()) for name in names])
    fields = answer.fields(given)
    assert fields.fieldNames() == answer.names
    assert [field.dataType.simpleString() for field in fields] == ["int", kind, "int", "int"]


def test_the_type_of_ids_goes_with_files():
    rs.Output().check_id_type()
    FULL.check_id_type("string")
    with pytest.raises(rc.OptionError, match=r"id_type goes with the reader of files, got 'string'; cast"):
        FULL.check_id_type()
    with pytest.raises(rc.OptionError, match=r"reader of files, which settled on int64, got 'string'"):
        FULL.check_id_type("int64")


def test_an_index_that_cannot_estimate_has_no_order():
    index = rc.open_index("islist", rc.Schema(rc.Int("price")))
    index.insert(rc.Subscriptions.parse(index.schema, {n: f"price < {n}" for n in range(600)}))
    rs.Output().check_index(index)
    with pytest.raises(rc.RangecastError, match="'islist' cannot estimate the work of an event"):
        FULL.check_index(index)
