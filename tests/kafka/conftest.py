"""One Kafka broker for the tests that need one."""

import uuid

import pytest


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory):
    """The address of a broker of our own."""
    pytest.importorskip("confluent_kafka")
    from jars import NoJars
    from kafka_broker import running

    try:
        with running(tmp_path_factory.mktemp("broker")) as address:
            yield address
    except NoJars as why:
        pytest.skip(str(why))


@pytest.fixture
def topics(bootstrap):
    """Makes topics of new names."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})

    def make(*names, partitions=3, **config):
        made = [f"{name}-{uuid.uuid4().hex[:8]}" for name in names]
        wanted = [NewTopic(name, partitions, 1, config=config) for name in made]
        for future in admin.create_topics(wanted).values():
            future.result(30)
        return made[0] if len(made) == 1 else made

    return make
