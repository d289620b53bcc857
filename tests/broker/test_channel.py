"""Messages between the process that writes and those that deliver: any length, in order, with connections."""

import asyncio
import os
import socket

import pytest

pytest.importorskip("msgspec")

from rangecast.broker.channel import _PACKET, Channel, receive_first

pytestmark = pytest.mark.without_kernels
LENGTHS = (0, 1, _PACKET - 20, _PACKET - 1, _PACKET, _PACKET + 1, 3 * _PACKET, 40 * _PACKET)


def pair():
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


def test_messages_of_any_length_come_whole_and_in_order():
    async def run():
        ours, theirs = pair()
        got, lost = [], []
        near = Channel(ours, lambda *_: None, lambda: lost.append("near"))
        far = Channel(theirs, lambda message, handle: got.append((message, handle)), lambda: None)
        for k, length in enumerate(LENGTHS):
            near.send("status", k, b"x" * length)
        await until(lambda: len(got) == len(LENGTHS))
        assert [(message[1], len(message[2]), handle) for message, handle in got] == [
            (k, length, -1) for k, length in enumerate(LENGTHS)
        ]
        assert not lost
        near.close()
        far.close()

    asyncio.run(run())


def test_a_connection_comes_with_its_message_however_long_that_is():
    async def run():
        ours, theirs = pair()
        got = []
        near = Channel(ours, lambda *_: None, lambda: None)
        far = Channel(theirs, lambda message, handle: got.append((message[1], handle)), lambda: None)
        handles = []
        for length in LENGTHS:
            reads, writes = os.pipe()
            handles.append(writes)
            near.send("connection", b"%d" % length + b"x" * length, handle=reads)
        near.send("drain", b"")
        await until(lambda: len(got) == len(LENGTHS) + 1)
        assert got.pop() == (b"", -1)
        for writes, (raw, reads), length in zip(handles, got, LENGTHS, strict=True):
            assert raw == b"%d" % length + b"x" * length
            os.write(writes, b"%d" % length)
            assert os.read(reads, 100) == b"%d" % length
            os.close(reads)
            os.close(writes)
        near.close()
        far.close()

    asyncio.run(run())


@pytest.mark.parametrize("length", [10, 5 * _PACKET])
def test_the_first_message_is_read_before_there_is_a_loop(length):
    async def send():
        channel = Channel(ours, lambda *_: None, lambda: None)
        channel.send("start", 1, 2, {"data": "x" * length})
        channel.send("drain")
        channel.close()

    ours, theirs = pair()
    asyncio.run(send())
    assert receive_first(theirs) == ["start", 1, 2, {"data": "x" * length}]
    assert receive_first(theirs) == ["drain"]
    with pytest.raises(EOFError, match="the other end has gone"):
        receive_first(theirs)
    theirs.close()
