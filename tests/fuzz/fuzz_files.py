"""Fuzz what reads files of events: arbitrary rows are matched or rejected, arbitrary bytes stop no process.

    python tests/fuzz/fuzz_files.py --seconds 60 --seed 7

Each round draws rows of nasty cells and writes them as CSV, JSON lines and Parquet. Every row must be an
event or a rejected row with a reason, and an event must match what the plain definition of its price says.
Then the bytes of the files are damaged: turned, cut, doubled, mixed with others. Whatever comes of that is a
RangecastError or an answer.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import sys
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fuzzing
from fuzz_values import BAD, drawn_text, whole

import rangecast as rc
from rangecast.errors import RangecastWarning
from rangecast.types.attributes import MISSING

SEEDS = (1, 20261118)
"""Those that have found something: 1, a carriage return within the header of a CSV file; 20261118, after
half a minute, a Parquet file that ended the process; tests/loading/test_files.py has the like."""
PIECES = [
    b'"',
    b",",
    b"\n",
    b"\r",
    b"\x00",
    b"\xff",
    b"{",
    b"}",
    b"[",
    b":",
    b"\\",
    b"PAR1",
    b"\x1f\x8b",
    b"9" * 30,
]


def new_index() -> rc.Index:
    schema = rc.Schema(rc.Int("price"), rc.Category("symbol"))
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "price > 5", 2: "price <= 5", 3: "price is null"}))
    return index


def written(rows: list[tuple[str | None, str | None]], form: str) -> bytes:
    """Rows of price and symbol as a file."""
    if form == "parquet":
        out = io.BytesIO()
        table = pa.table({"price": [p for p, _ in rows], "symbol": [s for _, s in rows]},
                         schema=pa.schema([("price", pa.string()), ("symbol", pa.string())]))  # fmt: skip
        pq.write_table(table, out)
        return out.getvalue()
    if form == "jsonl":
        return b"".join(json.dumps({"price": p, "symbol": s}).encode() + b"\n" for p, s in rows)
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerow(["price", "symbol"])
    writer.writerows([p or "", s or ""] for p, s in rows)
    return text.getvalue().encode()


def check_rows(rng: random.Random, folder: Path) -> int:
    """Whole files: each row is matched by its price, or rejected."""
    index = new_index()

    def cell() -> str:
        # what no file can hold, or what a CSV reader takes for an end of line, is for the damaged ones
        return drawn_text(rng).encode(errors="ignore").decode().translate({0: None, 10: None, 13: None})

    rows = [(cell(), cell()) for _ in range(rng.randrange(1, 20))]
    for form in ("csv", "jsonl", "parquet"):
        path = folder / f"events.{form}"
        path.write_bytes(written(rows, form))
        done = rc.match_file(index, path)
        codes = [whole(price) for price, _ in rows]
        good = [code for code in codes if code is not BAD]
        assert done.n_events == len(good), (form, rows)
        assert done.n_rejected == len(rows) - len(good), (form, rows)
        wanted = sum(1 for code in good if code != MISSING) + sum(1 for code in good if code == MISSING)
        assert done.n_pairs == wanted, (form, rows)
        assert done.pairs is not None
        found = dict(
            zip(done.pairs["event_id"].to_pylist(), done.pairs["subscription_id"].to_pylist(), strict=True)
        )
        for row, code in enumerate(codes, 1):
            if code is not BAD:
                assert found[row] == (3 if code == MISSING else 1 if code > 5 else 2), (form, rows[row - 1])
        assert all(row.reason.encode() for row in done.rejected)
    return 3 * len(rows)


def damaged(raw: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(raw) + 1)
        kind = rng.randrange(5)
        if kind == 0 and raw:
            at %= len(raw)
            raw = raw[:at] + bytes([raw[at] ^ 1 << rng.randrange(8)]) + raw[at + 1 :]
        elif kind == 1:
            raw = raw[:at]
        elif kind == 2:
            raw = raw[:at] + rng.choice(PIECES) + raw[at:]
        elif kind == 3:
            raw = raw[:at] + raw[at // 2 :]
        else:
            raw = raw[:at] + rng.randbytes(rng.randrange(1, 9)) + raw[at + rng.randrange(9) :]
    return raw


def check_bytes(rng: random.Random, folder: Path) -> int:
    """Damaged files: an answer, or an error of ours."""
    index = new_index()
    rows = [(drawn_text(rng).encode(errors="ignore").decode(), str(k)) for k in range(rng.randrange(1, 30))]
    n = 0
    for form in ("csv", "jsonl", "parquet", "csv.gz"):
        whole_file = written(rows, form.removesuffix(".gz"))
        for _ in range(3):
            raw = damaged(whole_file, rng)
            if form.endswith(".gz"):
                raw = gzip.compress(raw)
                raw = damaged(raw, rng) if rng.random() < 0.5 else raw
            path = folder / f"damaged.{form}"
            path.write_bytes(raw)
            n += 1
            try:
                done = rc.match_file(index, path)
            except rc.RangecastError:
                continue
            assert done.pairs is not None
            assert done.n_pairs == len(done.pairs), raw
            assert done.n_events + done.n_rejected <= 4 * len(raw) + 4, raw
    return n


def check(rng: random.Random, folder: Path) -> tuple[int, int]:
    """Some whole files and some damaged ones: (rows, damaged files)."""
    with warnings.catch_warnings():
        # a file without a value for an attribute is told apart from one that is wrong
        warnings.simplefilter("ignore", RangecastWarning)
        return check_rows(rng, folder), check_bytes(rng, folder)


if __name__ == "__main__":
    fuzzing.main(__doc__, check, "{:,} rows of files, {:,} damaged files, 0 raised, 0 wrong")
