"""A real S3-compatible server on loopback: S3Proxy over a folder, from Maven Central, fetched once.

    python tests/s3_server.py COMMAND ...

runs a command beside a server with an empty bucket `alerts`, whose address and keys are in the variables that
clients of S3 read. S3Proxy keeps the promise that a store needs, a conditional put (If-None-Match: *): of
many that create one object at once, one is told that it did.
"""

import contextlib
import http.client
import http.server
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from jars import free_port, jars, java, served

VERSION = "4.1.0"
BUCKET = "alerts"


@contextlib.contextmanager
def running(folder: Path):
    """A server that keeps its objects in this folder; gives its address."""
    # Maven would choose annotations that are older than what uses them
    annotations = "com.fasterxml.jackson.core", "jackson-annotations", "2.22"
    libs = jars("s3proxy", ("org.gaul", "s3proxy", VERSION), annotations)
    port = free_port()
    (folder / "data" / BUCKET).mkdir(parents=True)
    lines = {
        "s3proxy.endpoint": f"http://127.0.0.1:{port}",
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": "someone",
        "s3proxy.credential": "secret",
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": folder / "data",
    }
    (folder / "s3proxy.conf").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    (folder / "logback.xml").write_text('<configuration><root level="WARN"/></configuration>')
    run = [java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    run += [f"-Dlogback.configurationFile={folder / 'logback.xml'}", "-cp", f"{libs}/*"]
    main = [*run, "org.gaul.s3proxy.Main", "--properties", str(folder / "s3proxy.conf")]
    with served(main, port, folder / "server.log"):
        yield f"http://127.0.0.1:{port}"


def settings(address: str) -> dict[str, str]:
    """The variables by which clients of S3 find a server."""
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


@contextlib.contextmanager
def unreliable(address: str, fault):
    """A server in front of another; `fault(method, path, n)` says what happens to request number n.

    None passes it on. "500" answers so without asking. "lost" passes it on and loses the answer: 500 instead.
    A number waits for so many seconds before it passes the request on.
    """
    count = [0]
    guard = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self):
            with guard:
                count[0] += 1
                chosen = fault(self.command, self.path, count[0])
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length) if length else None
            if chosen == "500":
                self.answer(500, {}, b"")
                return
            if isinstance(chosen, int | float):
                time.sleep(chosen)
            passed = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
            with contextlib.closing(passed):
                passed.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() != "connection":
                        passed.putheader(name, value)
                passed.endheaders(body)
                found = passed.getresponse()
                status, headers, content = found.status, dict(found.headers), found.read()
            if chosen == "lost":
                self.answer(500, {}, b"")
                return
            self.answer(status, headers, content)

        def answer(self, status, headers, content):
            with contextlib.suppress(OSError):
                self.send_response_only(status)
                for name, value in headers.items():
                    if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                        self.send_header(name, value)
                size = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
                self.send_header("Content-Length", size)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = pass_on

        def log_message(self, *_):
            """Nothing is said."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", count
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch, running(Path(scratch)) as address:
        more = {"RANGECAST_CACHE": f"{scratch}/cache", **settings(address)}
        sys.exit(subprocess.run(sys.argv[1:], env={**os.environ, **more}, check=False).returncode)
