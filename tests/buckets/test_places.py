"""What a name of a place means, by one function: the same wherever a store, files or an output are named."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import rangecast as rc
from rangecast.cli.app import app
from rangecast.durable.bucket import is_address, local_place, open_file, place_of, seekable_file, size_of
from rangecast.loading.events import expand_paths
from rangecast.store.commits import commits_at

pytestmark = pytest.mark.without_kernels

REFUSED = (
    "dbfs:/x",
    "hdfs:/x",
    "hdfs://name/x",
    "wasbs://a/x",
    "s3:/bucket/x",
    "s3://",
    "S3://bucket/x",
    "http://host/x",
    "file://host/x",
    "jdbc:postgresql://host/x",
)
SCHEMA = rc.Schema(rc.Int("price"))


@pytest.mark.parametrize("place", REFUSED)
def test_schemes_that_are_not_known(place):
    message = r"an address must begin with s3://, s3a://, gs://, az://, abfs://, abfss://, or be a path"
    for ask in (place_of, is_address, lambda name: local_place(name, "x"), rc.Store.open):
        with pytest.raises(rc.OptionError, match=message):
            ask(place)
        if "//" not in place:
            with pytest.raises(rc.OptionError, match=message):
                ask(Path(place))


def test_a_path_that_lost_a_slash_is_no_folder():
    with pytest.raises(rc.OptionError, match=r"got s3:/; for a folder of this name, write ./s3:/bucket/x"):
        place_of(Path("s3://bucket/x"))
    with pytest.raises(rc.OptionError, match=r"got dbfs:/; on Databricks, dbfs:/x is the folder /dbfs/x"):
        place_of("dbfs:/alerts")


def test_paths_and_addresses():
    paths = ("a", "/a/b", "C:\\x", "C:/x", "a:b", "12:30/x.csv", "./dbfs:/x", "/a/dbfs:/x", "file:x", "")
    assert [place_of(path) for path in paths] == list(paths)
    assert not any(map(is_address, paths))
    for written in ("file:/a b/%20", "file:///a b/%20", "file://localhost/a b/%20", "FILE:/a b/%20"):
        assert (place_of(written), is_address(written)) == ("/a b/%20", False)
    addresses = ("s3://b", "s3a://b/x", "gs://b", "az://a/c", "abfss://c@a.dfs.core.windows.net/x")
    assert [place_of(address) for address in addresses] == list(addresses)
    assert all(map(is_address, addresses))
    assert [is_address(other) for other in (None, 5, SCHEMA)] == [False] * 3
    with pytest.raises(rc.OptionError, match=r"--data must be a file or folder of this machine, got s3://b"):
        local_place("s3://b", "--data")


def test_every_door_without_spark(tmp_path, monkeypatch):
    """No door makes a folder named after a scheme, and each takes file:// for a path."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events.csv").write_text("id,price\n1,12\n")
    (tmp_path / "schema.toml").write_text('[attributes.price]\ntype = "int"\n')
    (tmp_path / "alerts.csv").write_text("id,condition\n7,price > 10\n")
    before = sorted(tmp_path.iterdir())
    for door in (
        lambda place: rc.Store.open(place, SCHEMA),
        commits_at,
        lambda place: expand_paths([place]),
        open_file,
        seekable_file,
        size_of,
    ):
        with pytest.raises(rc.OptionError, match="an address must begin with"):
            door("dbfs:/x")
    given = ["match", "--schema", "schema.toml", "--subscriptions", "alerts.csv", "--events"]
    for arguments in (
        [*given, "dbfs:/e.csv", "--out", "found.csv"],
        [*given, "events.csv", "--out", "dbfs:/found.csv"],
        [*given, "events.csv", "--out", "s3://bucket/found.csv"],
        ["store", "add", "dbfs:/store", "--schema", "schema.toml", "--subscriptions", "alerts.csv"],
        ["serve", "--data", "dbfs:/broker"],
        ["serve", "--data", "s3://bucket/broker"],
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code != 0, arguments
        said = result.output + str(result.exception)
        assert "must begin with" in said or "of this machine" in said, said
    assert sorted(tmp_path.iterdir()) == before
    url = tmp_path.as_uri()
    result = CliRunner().invoke(app, [*given, f"{url}/events.csv", "--out", f"{url}/found.csv"])
    assert (result.exit_code, (tmp_path / "found.csv").read_text().split()) == (
        0,
        ["event_id,subscription_id", "1,7"],
    )
    store = rc.Store.open(f"{url}/store", SCHEMA)
    assert store.path == tmp_path / "store"
    pq.write_table(pa.table({"id": [1], "price": [12]}), tmp_path / "e.parquet")
    assert size_of(f"{url}/e.parquet") == (tmp_path / "e.parquet").stat().st_size
    assert expand_paths([f"{url}/*.parquet"]) == [str(tmp_path / "e.parquet")]
