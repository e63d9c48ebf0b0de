"""A hub of our own on a local port: serves folders as repositories, by the parts of its protocol that are used."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "c" * 40


class Hub:
    """``repositories`` maps ORG/NAME to a folder; ``cut`` ends the connection in the middle of each such file, once."""

    def __init__(self, repositories: dict[str, Path]) -> None:
        self.repositories = repositories
        self.requests: list[str] = []
        self.cut: set[str] = set()
        self.address = ""

    def environment(self, cache: Path) -> dict[str, str]:
        """What makes huggingface_hub use this hub and an empty cache."""
        return {
            "HF_ENDPOINT": self.address,
            "HF_HOME": str(cache),
            "HF_HUB_CACHE": str(cache / "hub"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }


@contextmanager
def serving(repositories: dict[str, Path]) -> Iterator[Hub]:
    """Run a hub until the block ends."""
    hub = Hub(repositories)

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def log_message(self, *arguments: object) -> None:
        pass

    def _answer(self, body: bool) -> None:
        path = self.path.partition("?")[0]
        self.hub.requests.append(f"{self.command} {path} {self.headers.get('Range', '')}".strip())
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?", path):
            self._describe(match[1], match[2], match[3], body)
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._serve(match[1], match[2], match[3], body)
        else:
            self._fail("EntryNotFound")

    def _describe(self, name: str, what: str | None, revision: str | None, body: bool) -> None:
        folder = self.hub.repositories.get(name)
        if folder is None:
            return self._fail("GatedRepo", 403) if name.startswith("gated/") else self._fail("RepoNotFound", 401)
        if revision not in (None, "main", COMMIT):
            return self._fail("RevisionNotFound")
        files = sorted(path for path in folder.iterdir() if path.is_file())
        if what == "tree":
            found = [{"type": "file", "path": p.name, "size": p.stat().st_size, "oid": _digest(p)} for p in files]
            return self._send(json.dumps(found).encode(), body)
        siblings = [{"rfilename": path.name} for path in files]
        return self._send(json.dumps({"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings}).encode(), body)

    def _serve(self, name: str, revision: str, file: str, body: bool) -> None:
        folder = self.hub.repositories.get(name)
        if folder is None:
            return self._fail("RepoNotFound", 401)
        if revision not in ("main", COMMIT):
            return self._fail("RevisionNotFound")
        if not (folder / file).is_file():
            return self._fail("EntryNotFound")
        content = (folder / file).read_bytes()
        headers = {"ETag": f'"{_digest(folder / file)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        begin = 0
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            begin = int(match[1])
            end = int(match[2]) + 1 if match[2] else len(content)
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(content)}"
            content = content[begin:end]
        if body and file in self.hub.cut:
            self.hub.cut.discard(file)
            return self._send(content, body, headers, 206 if begin else 200, only=len(content) // 2)
        return self._send(content, body, headers, 206 if "Content-Range" in headers else 200)

    def _fail(self, code: str, status: int = 404) -> None:
        self._send(b"{}", True, {"X-Error-Code": code, "X-Error-Message": code}, status)

    def _send(
        self,
        content: bytes,
        body: bool,
        headers: dict[str, str] | None = None,
        status: int = 200,
        only: int | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if body and self.command != "HEAD":
            self.wfile.write(content if only is None else content[:only])
        if only is not None:
            self.wfile.flush()
            self.close_connection = True


def _digest(path: Path) -> str:
    return hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()
