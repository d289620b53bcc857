"""Texts as people write them from the habit of SQL, code and spreadsheets: what is accepted, and as what, and
what is refused, with what to write instead."""

# ruff: noqa: RUF001

import pytest

import rangecast as rc
from rangecast.language import clauses_of, compile_conditions

pytestmark = pytest.mark.without_kernels

# a text, and the plain condition that it means
ACCEPTED = """
price > 5 && volume = 1                     | price > 5 and volume = 1
price > 5 || volume = 1                     | price > 5 or volume = 1
!(price > 5)                                | not price > 5
! price > 5                                 | not price > 5
price > 5 && !(volume = 1)                  | price > 5 and volume != 1
price > 5 ∧ volume = 1                      | price > 5 and volume = 1
price > 5 ∨ volume = 1                      | price > 5 or volume = 1
¬ price > 5                                 | price <= 5
symbol ∈ ('A', 'B')                         | symbol in ('A', 'B')
price ≥ 5                                   | price >= 5
price ≤ 5                                   | price <= 5
price ≠ 5                                   | price != 5
5 ≤ price ≤ 9                               | price between 5 and 9
price == 5                                  | price = 5
price === 5                                 | price = 5
price !== 5                                 | price != 5
price <> 5                                  | price != 5
price > 1_000                               | price > 1000
price > 1_000_000                           | price > 1000000
change > 1_000.5                            | change > 1000.5
price > 10k                                 | price > 10000
price > 10K                                 | price > 10000
price > 2.5k                                | price > 2500
price > -3k                                 | price > -3000
change < 0.5k                               | change < 500
price > −5                                  | price > -5
price > –5                                  | price > -5
change < −0.5                               | change < -0.5
price > +5                                  | price > 5
price > 5.                                  | price > 5
change > .5                                 | change > 0.5
price > 1e3                                 | price > 1000
price > 007                                 | price > 7
price > 5 -- cheap                          | price > 5
price > 5 -- it's cheap                     | price > 5
price > 5 --                                | price > 5
price > 5 -- and volume = 1                 | price > 5
price > 5 /* cheap */ and volume = 1        | price > 5 and volume = 1
/* cheap */ price > 5                       | price > 5
price > 5;                                  | price > 5
price > 5 ;                                 | price > 5
price > 5; -- done                          | price > 5
WHERE price > 5                             | price > 5
where price > 5;                            | price > 5
at > DATE '2026-01-31'                      | at > 2026-01-31
at > date '2026-01-31'                      | at > 2026-01-31
at > TIMESTAMP '2026-01-31 10:00:00'        | at > 2026-01-31 10:00:00
at > datetime '2026-01-31T10:00Z'           | at > 2026-01-31T10:00:00Z
at between DATE '2026-01-01' and DATE '2026-01-31' | at between 2026-01-01 and 2026-01-31
DATE '2026-01-31' < at                      | at > 2026-01-31
at > '2026-01-31'                           | at > 2026-01-31
at > 2026-01-31                             | at > 2026-01-31T00:00:00Z
at > '2026-01-31 10:00'                     | at > 2026-01-31T10:00
at ON 2026-01-31                            | 2026-01-31 <= at < 2026-02-01
at on '2026-01-31'                          | 2026-01-31 <= at < 2026-02-01
at on date '2026-01-31'                     | 2026-01-31 <= at < 2026-02-01
not at on 2026-01-31                        | at < 2026-01-31 or at >= 2026-02-01
symbol = "IBM"                              | symbol = 'IBM'
symbol = "it's"                             | symbol = 'it''s'
symbol != "IBM"                             | symbol != 'IBM'
symbol in ("IBM", "HAL")                    | symbol in ('IBM', 'HAL')
symbol in ["IBM", "HAL"]                    | symbol in ('IBM', 'HAL')
symbol in ['IBM', 'HAL']                    | symbol in ('IBM', 'HAL')
symbol not in ['IBM']                       | symbol not in ('IBM')
price in [1, 2]                             | price in (1, 2)
symbol = ‘IBM’                              | symbol = 'IBM'
symbol = ’IBM’                              | symbol = 'IBM'
symbol = “IBM”                              | symbol = 'IBM'
symbol = ”IBM”                              | symbol = 'IBM'
symbol in (‘IBM’, “HAL”)                    | symbol in ('IBM', 'HAL')
symbol = ‘it's’                             | symbol = 'it''s'
"price" > 5                                 | price > 5
`price` > 5                                 | price > 5
PRICE > 5                                   | price > 5
Price BETWEEN 5 AND 9                       | price between 5 and 9
price IS NOT NULL                           | price is present
price IS NULL                               | price is missing
NOT price IS NULL                           | price is present
NOT (price = 5 OR price = 6)                | price not in (5, 6)
price not between 5 and 9                   | price < 5 or price > 9
symbol NOT IN ('A')                         | symbol != 'A'
5 < price                                   | price > 5
'IBM' = symbol                              | symbol = 'IBM'
price>5&&volume=1                           | price > 5 and volume = 1
price>=5||!(volume<=1)                      | price >= 5 or volume > 1
(((price > 5)))                             | price > 5
price in(5)                                 | price = 5
extract(hour from at) > 9                   | hour(at) > 9
EXTRACT(ISODOW FROM at) in (6, 7)           | weekday(at) in (6, 7)
extract(year from at) + 1 = 2027            | year(at) + 1 = 2027
date(at) = DATE '2026-01-31'                | date(at) = 2026-01-31
date_trunc('day', at) = DATE '2026-01-31'   | date(at) = 2026-01-31
at > DATE '2026-01-31' + 9 h                | at > 2026-01-31 + 9 h
at - timestamp '2026-01-31 10:00' > 5 min   | at - 2026-01-31T10:00 > 5 min
ifnull(price, volume) > 5                   | coalesce(price, volume) > 5
nvl(price, 0) = 0                           | coalesce(price, 0) = 0
ceiling(change) = 3                         | ceil(change) = 3
char_length(symbol) = 3                     | length(symbol) = 3
lcase(symbol) = 'ibm'                       | lower(symbol) = 'ibm'
left(symbol, 2) = 'IB'                      | symbol starts with 'IB'
LEFT(symbol, 2) <> 'IB'                     | not symbol starts with 'IB'
left(symbol, 3) in ('IBM', 'HAL')           | symbol starts with 'IBM' or symbol starts with 'HAL'
left(symbol, 3) not in ('IBM')              | not symbol starts with 'IBM'
left(lower(symbol), 2) = 'ib'               | lower(symbol) starts with 'ib'
right(symbol, 2) = 'BM' and price > 5       | symbol ends with 'BM' and price > 5
substring(symbol, 1, 2) = 'IB'              | symbol starts with 'IB'
not substr(symbol, 1, 2) = 'IB'             | not symbol starts with 'IB'
'A' = ANY(topics)                           | topics has 'A'
not 'A' = any(topics)                       | not topics has 'A'
list_contains(topics, 'A') and price > 5    | topics has 'A' and price > 5
not array_contains(topics, 'A')             | not topics has 'A'
"""

# a text, and what to write instead
REFUSED = """
price > 1,000                               | 1000 or 1_000
price > 10,000,000                          | 1000 or 1_000
price in (1,000, 2,000)                     | 1000 or 1_000
price between 1,000 and 2,000               | 1000 or 1_000
change > 1,5                                | decimal point: 1.5
change > 5%                                 | 0.05 for five percent
change > 5 %                                | 0.05 for five percent
change > -2.5%                              | 0.05 for five percent
price > $5                                  | without its currency
price > €5                                  | without its currency
price > 5$                                  | without its currency
price > 5 USD                               | without its unit
price > 5EUR                                | without its currency
price > 5M                                  | 1e6 or 1_000_000
price > 5 million                           | 1e6 or 1_000_000
price > 5bn                                 | 1e9 or 1_000_000_000
price > 5 billion                           | 1e9 or 1_000_000_000
price > 5 thousand                          | 1_000 or 1k
price > 0xFF                                | decimal digits
price = 5..9                                | BETWEEN 10 AND 20
price = 5-9                                 | BETWEEN 10 AND 20
price > 5kg                                 | without its unit
price > '5'                                 | without quotes: 5
price in ('5', '6')                         | without quotes: 5
change > '0.5'                              | without quotes: 0.5
symbol = 5                                  | a string is written '5'
symbol in (5, 6)                            | a string is written '5'
symbol = IBM                                | a string is written 'IBM'
symbol in (IBM, HAL)                        | a string is written 'IBM'
symbol = 'it's'                             | doubled: 'it''s'
symbol = 'it\\'s'                           | doubled: 'it''s'
symbol = 'IBM                               | not closed
symbol = 'IBM"                              | not closed
price > = 5                                 | >= without a blank
price < = 5                                 | without a blank
price < > 5                                 | without a blank
price => 5                                  | write >=
price =< 5                                  | write <=
price >> 5                                  | write >= without
price =! 5                                  | expected a value
price ~ 5                                   | the operators are
price ~= 5                                  | the operators are
price ^= 5                                  | the operators are
price not = 5                               | write !=
price not > 5                               | the opposite operator
price not 5                                 | expected BETWEEN or IN
price > 5 & volume = 1                      | write AND
price > 5 | volume = 1                      | write OR
price > 5 xor volume = 1                    | AND, OR and NOT
price > 5 but volume = 1                    | write AND
price > 5 unless volume = 1                 | write AND NOT
price > 5, volume = 1                       | write AND between
price > 5 volume = 1                        | expected AND, OR
price > 5 and < 9                           | name the attribute again
price > 5 or < 2                            | name the attribute again
price = 5 or 6                              | IN (5, 6)
symbol = 'A' or 'B'                         | IN (5, 6)
symbol = 'A', 'B'                           | IN ('A', 'B')
price equals 5                              | write =
price eq 5                                  | write =
price ne 5                                  | write !=
price gte 5                                 | write >=
price at least 5                            | write >=
price lte 5                                 | write <=
price above 5                               | write >
price over 5                                | write >
price greater than 5                        | write >
price below 5                               | write <
price less than 5                           | write <
price exists                                | IS PRESENT
price present                               | IS PRESENT
price isnull                                | IS MISSING
price notnull                               | IS PRESENT
price missing                               | IS MISSING
price is 5                                  | write = to compare
price is not 5                              | write != to compare
symbol is 'A'                               | write = to compare
symbol is "A"                               | write = to compare
price is empty                              | IS MISSING or IS PRESENT
price is not empty                          | IS MISSING or IS PRESENT
price is unknown                            | IS MISSING or IS PRESENT
change is nan                               | IS MISSING or IS PRESENT
price is distinct from 5                    | write != or =
price is in (5, 6)                          | leave out IS
price is between 5 and 9                    | leave out IS
price = null                                | IS MISSING
price != NULL                               | IS MISSING
change = nan                                | IS MISSING
price in (5, null)                          | IS MISSING
sqrt(change) < 3                            | unknown function sqrt; compare the square
change + pow(price, 2) > 3                  | a power is a product
starts_with(symbol, 'A')                    | name STARTS WITH 'x'
regexp_like(symbol, 'A.*')                  | name MATCHES 'regular expression'
datediff(at, 5) > 3                         | at - since > 5 min
price > mod(volume, 2)                      | let the event have the result
date_trunc('hour', at) = 2026-01-31         | takes 'day'
extract(century from at) = 20               | of day, hour, isodow, minute, month, year
substring(symbol, 2, 2) = 'BM'              | LIKE '_B%'
left(symbol, 2) = 'IBM'                     | never equal
left(symbol, 2) > 'IB'                      | = != or IN
left(price, 2) = '12'                       | price is int
left(symbol) = 'IB'                         | a text and a length
price > left(symbol, 2)                     | write left(name, 2) = 'AB'
'A' = ANY(price)                            | an attribute of strings
list_contains(topics)                       | a comma and a string
price between (5, 9)                        | BETWEEN 10 AND 20
price between 5 to 9                        | BETWEEN 10 AND 20
price between 5, 9                          | write AND
price between symmetric 9 and 5             | the low end first
price between 9 and 5                       | low must not exceed high
price from 5 to 9                           | write >=
price 5 to 9                                | expected an operator
price in 5                                  | with parentheses
symbol in 'A', 'B'                          | with parentheses
symbol in {'A', 'B'}                        | with parentheses
symbol in ()                                | needs a value
symbol in ('A', 'B',)                       | none after its last comma
symbol in (select name from names)          | reads no tables
symbol in ('A' 'B')                         | a comma or )
symbol in ['A', 'B')                        | a comma or ]
select * from trades where price > 5        | after WHERE
SELECT price FROM trades                    | after WHERE
price > 5 order by price                    | leave out the rest
price > 5 limit 10                          | leave out the rest
price > 5 group by symbol                   | leave out the rest
if price > 5                                | the cases as
case when price > 5 then 1 end              | the cases as
count(*) > 5                                | one event alone
avg(price) > 5                              | one event alone
price > (select 5)                          | expected a value
exists price                                | IS PRESENT
cast(price as int) > 5                      | leave out the cast
price::int > 5                              | leave out the cast
price > ?                                   | fill in the placeholder
price > :low                                | fill in the placeholder
price > @low                                | fill in the placeholder
price > ${low}                              | currency
price > {{low}}                             | fill in the placeholder
price > 5 # cheap                           | begins with --
price > 5 // cheap                          | begins with --
[price] > 5                                 | in double quotes
trades.price > 5                            | write price
prise > 5                                   | did you mean price
colour = 'red'                              | the schema has
price-5 > 3                                 | blanks around
at > now()                                  | as time goes by
at > now() - interval '1 hour'              | as time goes by
at > current_timestamp                      | as time goes by
at > CURRENT_DATE                           | as time goes by
at > today                                  | as time goes by
at > yesterday                              | as time goes by
at > getdate()                              | as time goes by
at > interval '1 hour'                      | 5 min, 2 h or 1 d
at > 31.01.2026                             | 2026-01-31
at > 2026/01/31                             | 2026-01-31
at > 01/31/2026                             | 2026-01-31
at > 2026-1-31                              | two digits
at > 10:30                                  | has a date
at > Jan 31 2026                            | 2026-01-31
at = 'yesterday'                            | is a timestamp
at > 2026-02-30                             | is not a timestamp
at > 2026-01-31T25:00                       | is not a timestamp
at > date 'tomorrow'                        | date '2026-01-31'
at on 2026-01-31T10:00                      | ON takes a date
at on 5                                     | ON takes a date
price on 2026-01-31                         | ON takes an attribute of instants
price > 2026-01-31                          | got the timestamp
symbol > 'A'                                | it takes = != IN
symbol between 'A' and 'B'                  | it takes = != IN
symbol = yes                                | in quotes
price matches '5.*'                         | MATCHES takes text and a string, and price is int
                                            | is empty
-- nothing                                  | is empty
;                                           | is empty
where                                       | expected an attribute
and price > 5                               | expected an attribute
price > 5 and                               | expected an attribute
price > 5 or or volume = 1                  | expected an attribute
not                                         | expected an attribute
(price > 5                                  | a ) for the ( at column 1
price > 5)                                  | expected AND, OR
price > 5;;                                 | expected AND, OR
price > 5; volume = 1                       | expected AND, OR
price                                       | expected an operator
price >                                     | expected a value
> 5                                         | expected an attribute
5                                           | after the value
5 > 3                                       | expected an attribute
true                                        | after the value
"""


def rows_of(table):
    return [tuple(part.strip() for part in row.rsplit("|", 1)) for row in table.strip("\n").split("\n")]


def make_schema():
    return rc.Schema(
        rc.Int("price"),
        rc.Float("change"),
        rc.Category("symbol"),
        rc.Timestamp("at"),
        rc.Int("volume"),
        rc.Tags("topics"),
    )


def test_there_are_enough():
    assert len(rows_of(ACCEPTED)) + len(rows_of(REFUSED)) >= 200


@pytest.mark.parametrize(("text", "plain"), rows_of(ACCEPTED))
def test_accepted(text, plain):
    schema = make_schema()
    assert clauses_of(schema, text) == clauses_of(schema, plain)
    # in bulk as alone, whatever stands beside it
    beside = [plain, text, text, plain, text, plain]
    compiled = compile_conditions(schema, beside)
    assert not compiled.errors
    lows, highs = compiled.lows.reshape(6, -1), compiled.highs.reshape(6, -1)
    assert (lows == lows[0]).all()
    assert (highs == highs[0]).all()


@pytest.mark.parametrize(("text", "hint"), rows_of(REFUSED))
def test_refused(text, hint):
    schema = make_schema()
    with pytest.raises(rc.LanguageError) as caught:
        clauses_of(schema, text)
    first, *_ = str(caught.value).split("\n")
    assert hint in first
    ((row, error),) = compile_conditions(schema, ["price > 5", text]).errors
    assert (row, str(error)) == (1, str(caught.value))


def test_a_literal_in_a_comment_is_none():
    schema = make_schema()
    texts = [
        "symbol = ‘x’ -- 'x'",
        "symbol = ‘x’ -- 'y'",
        "price > 5 -- 7",
        "price > 5 -- 8",
        "price > 5 -- 9",
    ]
    compiled = compile_conditions(schema, texts)
    assert not compiled.errors
    assert compiled.lows.tolist() == [1, 1, 6, 6, 6]
