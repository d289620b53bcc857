"""Attributes that a schema computes: names for expressions."""

import pickle

import pytest

import rangecast as rc
from oracle import rows_of

pytestmark = pytest.mark.without_kernels


def schema_of():
    return rc.Schema(
        rc.Float("price"), rc.Int("quantity"), rc.Float("notional", "price * quantity"),
        rc.Float("half", "notional / 2"), rc.Int("lots", "quantity - 1"),
    )  # fmt: skip


ROWS = [
    {"price": 3.0, "quantity": 5}, {"price": 300.0, "quantity": 5}, {"quantity": 1},
    {"price": 1.0, "quantity": 2, "notional": 5_000.0}, {},
]  # fmt: skip
# what is said by a name, and the same by its expression
PAIRS = [
    ("notional > 1000", "price * quantity > 1000"),
    ("NOTIONAL between 10 and 20", "price * quantity between 10 and 20"),
    ("5 < notional <= 100", "5 < price * quantity <= 100"),
    ('"notional" is missing and quantity = 1', "price * quantity is missing and quantity = 1"),
    ("not half > 7 or lots in (0, 4)", "not price * quantity / 2 > 7 or quantity - 1 in (0, 4)"),
    (
        "notional > price and half < notional",
        "price * quantity > price and price * quantity / 2 < price * quantity",
    ),
    ("abs(notional - 15) < 0.5", "abs(price * quantity - 15) < 0.5"),
]


@pytest.mark.parametrize(("named", "said"), PAIRS)
def test_a_name_says_its_expression(named, said):
    schema = schema_of()
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: named, 2: said}))
    found = rows_of(index.match(rc.Events.from_rows(schema, ROWS)))
    assert all(row in ([], [1, 2]) for row in found)
    assert any(found)


def test_conditions_share_the_hidden_attribute():
    schema = schema_of()
    subs = rc.Subscriptions.parse(
        schema, {k: f"notional > {k}" for k in range(50)} | {50: "price * quantity < 9"}
    )
    assert subs.schema.hidden_names() == ["price * quantity"]
    assert (schema.names, len(schema)) == (("price", "quantity"), 2)


def test_files_stores_and_explanations_keep_the_name(tmp_path):
    schema = schema_of()
    (tmp_path / "schema.toml").write_text(schema.to_toml())
    assert rc.Schema.from_toml(tmp_path / "schema.toml") == schema == pickle.loads(pickle.dumps(schema))
    assert schema != rc.Schema(*schema)
    store = rc.Store.open(tmp_path / "store", schema)
    store.insert(rc.Subscriptions.parse(store.schema, {7: "notional > 10"}))
    again = rc.Store.open(tmp_path / "store")
    assert again.schema == schema
    again.insert(rc.Subscriptions.parse(again.schema, {8: "half > 100"}))
    assert rows_of(again.index().match(rc.Events.from_rows(again.schema, ROWS))) == [[7], [7, 8], [], [], []]
    told = str(again.index().explain(7, ROWS[0]))
    assert "yes  notional > 10: price * quantity is 15.0" in told
    again.index().save(tmp_path / "index")
    loaded = rc.load_index(tmp_path / "index")
    loaded.insert(rc.Subscriptions.parse(loaded.schema, {9: "lots = 4"}))
    assert rows_of(loaded.match(rc.Events.from_rows(loaded.schema, ROWS)))[0] == [7, 9]


@pytest.mark.parametrize(
    ("name", "formula", "message"),
    [
        ("n", "price *", "attribute 'n': expression 'price *', column 8: expected an attribute or a number"),
        (
            "n",
            "price + other",
            "attribute 'n': expression 'price + other', column 9: unknown attribute 'other'",
        ),
        ("n", "quantity * 2", "attribute 'n': the expression 'quantity * 2' gives int, so it is no float"),
        ("n", "2.5", "attribute 'n': '2.5' reads no attribute"),
        ("n", "later + price", "unknown attribute 'later'"),
        ("price", "quantity / 2", "attribute names must differ, got twice: price"),
    ],
)
def test_refused(name, formula, message):
    with pytest.raises(rc.SchemaError) as caught:
        rc.Schema(
            rc.Float("price"), rc.Int("quantity"), rc.Float(name, formula), rc.Float("later", "price / 2")
        )
    assert message in str(caught.value)


def test_a_schema_must_have_a_column():
    with pytest.raises(rc.SchemaError, match="must have an attribute that is not computed"):
        rc.Schema(rc.Float("n", "price * 2"))
    with pytest.raises(rc.SchemaError, match="unknown setting expression"):
        rc.Schema.from_dict({"a": {"type": "category", "expression": "b"}})


def test_a_store_refuses_other_units_and_other_expressions(tmp_path):
    own = [rc.Timestamp("at", unit="s"), rc.Int("a"), rc.Int("twice", "a + a")]
    rc.Store.open(tmp_path / "store", rc.Schema(*own))
    assert rc.Store.open(tmp_path / "store", rc.Schema(*own)).schema == rc.Schema(*own)
    others = [
        [rc.Timestamp("at", unit="ms"), *own[1:]], [rc.Timestamp("at"), *own[1:]], own[:2],
        [*own[:2], rc.Int("twice", "2 * a + 1")],
    ]  # fmt: skip
    for other in others:
        with pytest.raises(rc.SchemaError, match="must have these units and computed attributes: Timestamp"):
            rc.Store.open(tmp_path / "store", rc.Schema(*other))


def test_some_of_events_that_came_as_codes_keep_their_expressions():
    schema = rc.Schema(rc.Category("symbol"), rc.Int("a"))
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "symbol starts with 'ab'", 2: "symbol contains 'c'"}))
    words = ["abx", "xyc", "abc", "z"]
    events = rc.Events.from_rows(schema, [{"symbol": w} for w in words])
    batch = events.encoded(index.schema)
    coded = rc.Events.coded(index.schema, batch.codes, batch.owners)
    assert rows_of(index.match(coded)) == [[1], [2], [1, 2], []]
    assert rows_of(index.match(coded.select([2, 0]))) == [[1, 2], [1]]
