"""Send random and malformed requests to a broker, over HTTP and WebSocket; count the answers.

    python tests/broker/hostile.py --requests 100000
    python tests/broker/hostile.py --requests 100000 --keep [PRINTED]     for docs/broker.md

With --keep the counts go to benchmarks/figures, and with a file after it, what such a run has printed there.
"""

import argparse
import ast
import asyncio
import importlib.util
import random
import re
import sys
import tempfile
import time
from pathlib import Path

import httpx
import psutil
import websockets

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import seeds

HERE = Path(__file__).parent


def module(name):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


async def hostile_websockets(url, n, seed):
    source = random.Random(seed)
    address = url.replace("http", "ws") + "/v1/main/consumers/alice/ws"
    for _ in range(n):
        async with websockets.connect(address) as socket:
            for _ in range(source.randrange(1, 4)):
                raw = source.randbytes(source.randrange(80))
                try:
                    await socket.send(raw if source.random() < 0.5 else raw.decode("latin-1"))
                except websockets.ConnectionClosed:
                    break


def printed_counts(text):
    """What a run has printed: megabytes after each tenth, answers by status, open files."""
    memory = [int(size) for size in re.findall(r"requests, +(\d+) MB", text)]
    answers, files = re.search(r"^({.*}) (\d+) open files$", text, re.MULTILINE).groups()
    return memory, ast.literal_eval(answers), int(files)


def keep(requests, memory, answers, files):
    command = f"python tests/broker/hostile.py --requests {requests}"
    row = {"command": command, "memory MB": memory, "answers": answers, "open files": files}
    module("soak").figures().keep_soak("hostile", row)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--keep", nargs="?", const=True)
    seeds.add_option(parser)
    options = parser.parse_args()
    if isinstance(options.keep, str):
        keep(options.requests, *printed_counts(Path(options.keep).read_text()))
        return
    defence, soak = module("test_defence"), module("soak")
    with tempfile.TemporaryDirectory() as folder:
        broker = soak.Broker(Path(folder))
        broker.start()
        process = psutil.Process(broker.process.pid)
        counts, memory = {}, []
        each = max(1, options.requests // 10)
        for turn in range(10):
            for status, n in defence.hostile_http(broker.url, each, 100 * options.seed + turn).items():
                counts[status] = counts.get(status, 0) + n
            asyncio.run(hostile_websockets(broker.url, each // 50, 100 * options.seed + turn))
            memory.append(process.memory_info().rss)
            print(f"{(turn + 1) * each:8,} requests, {memory[-1] / 1e6:6.0f} MB", flush=True)
        time.sleep(1)
        files = process.num_fds()
        assert httpx.get(f"{broker.url}/readyz").status_code == 200
        broker.process.terminate()
        assert broker.process.wait(30) == 0
    answers = {status or "cut": n for status, n in sorted(counts.items())}
    print(answers, f"{files} open files")
    if options.keep:
        keep(options.requests, [round(size / 1e6) for size in memory], answers, files)
    # the log of what was accepted grows, and with it the memory of keys; a leak would show tenfold
    sys.exit(1 if "500" in counts or memory[-1] > 1.5 * memory[2] else 0)


if __name__ == "__main__":
    main()
