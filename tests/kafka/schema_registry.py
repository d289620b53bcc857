"""A schema registry in this process: the paths that readers ask for, over HTTP."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


class Registry:
    """Schemas by id and by subject; `asked` has the paths that were asked for, `broken` answers 503."""

    def __init__(self):
        self.ids, self.subjects, self.asked = {}, {}, []
        self.broken = 0
        self.user = None

    def add(self, number, text, kind="AVRO", references=(), serialized=None):
        """A schema; `serialized` is what format=serialized gives."""
        self.ids[number] = (text, kind, references, serialized)

    def refer(self, subject, version, text, kind="AVRO", references=(), serialized=None):
        self.subjects[subject, version] = (text, kind, references, serialized)

    def find(self, path):
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[:2] == ["schemas", "ids"]:
            return self.ids.get(int(parts[2]))
        if parts[0] == "subjects":
            return self.subjects.get((parts[1], int(parts[3])))
        return None


def wire(number, body, indexes=b""):
    """A value as a registry's serializers write it."""
    return b"\0" + number.to_bytes(4, "big") + indexes + body


@contextlib.contextmanager
def serving():
    """A registry and its address."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            url = urlsplit(self.path)
            registry.asked.append(self.path)
            if registry.broken:
                registry.broken -= 1
                return self.answer(503, {"error_code": 50301, "message": "busy"})
            if registry.user is not None and self.headers.get("Authorization") != registry.user:
                return self.answer(401, {"error_code": 401, "message": "who are you"})
            found = registry.find(url.path)
            if found is None:
                return self.answer(404, {"error_code": 40403, "message": "Schema not found"})
            text, kind, references, serialized = found
            if parse_qs(url.query).get("format") == ["serialized"]:
                if serialized is None:
                    return self.answer(501, {"error_code": 501, "message": "no such format"})
                text = serialized
            out = {"schema": text}
            if kind != "AVRO":  # as the real one, which leaves out what it has always been
                out["schemaType"] = kind
            if references:
                out["references"] = [{"name": n, "subject": s, "version": v} for n, s, v in references]
            return self.answer(200, out)

        def answer(self, status, content):
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield registry, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
