"""A web page that is a device: the JavaScript package and a page, served without TLS on the loopback."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

__all__ = ["served_page"]


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Write nothing."""

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        super().end_headers()


@contextmanager
def served_page(directory: Path, page: str, modules: Mapping[str, Path], port: int) -> Iterator[None]:
    """A server that has a page at `/` and modules below `/hush/`; `directory` is for copies of them."""
    (directory / "hush").mkdir(parents=True, exist_ok=True)
    (directory / "index.html").write_text(page, encoding="utf-8")
    for name, path in modules.items():
        (directory / "hush" / name).write_bytes(path.read_bytes())
    server = ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, directory=str(directory)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
