#!/usr/bin/env python3
"""A small tile server on this machine: serves a folder as z/x/y.png or z/x/y.pbf with validators and a lifetime.

    sample-origin.py FOLDER [--outlines FOLDER] [--port 0] [--max-age SECONDS] [--delay SECONDS] [--port-file FILE]

Below /gap/ one tile in seven does not exist, below /slow/ answers take a third of a second longer. Below /outlines/ are the
vector tiles of another folder, compressed by gzip.
"""
import argparse
import hashlib
import http.server
import os
import pathlib
import re
import sys
import time

TILE = re.compile(r"^/(?:(gap|slow|outlines)/)?(\d{1,2})/(\d+)/(\d+)\.(png|pbf)$")
TYPES = {"png": "image/png", "pbf": "application/vnd.mapbox-vector-tile"}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder = outlines = pathlib.Path(".")
    max_age = 20
    delay = 0.0

    def do_GET(self):
        match = TILE.match(self.path)
        if not match:
            return self.answer(404, b"no such page\n", "text/plain")
        kind, z, x, y, ending = match.group(1), *(int(part) for part in match.groups()[1:4]), match.group(5)
        time.sleep(self.delay + (0.3 if kind == "slow" else 0))
        file = (self.outlines if kind == "outlines" else self.folder) / str(z) / str(x) / f"{y}.{ending}"
        if not file.is_file() or kind == "gap" and (x + 3 * y) % 7 == 3:
            return self.answer(404, b"no such tile\n", "text/plain", lifetime=300)
        body = file.read_bytes()
        tag = '"' + hashlib.sha256(body).hexdigest()[:16] + '"'
        if self.headers.get("If-None-Match") == tag:
            return self.answer(304, b"", None, tag, self.max_age)
        self.answer(200, body, TYPES[ending], tag, self.max_age)

    do_HEAD = do_GET

    def answer(self, status, body, kind, tag=None, lifetime=0):
        self.send_response(status)
        if kind:
            self.send_header("Content-Type", kind)
        if kind == TYPES["pbf"]:
            self.send_header("Content-Encoding", "gzip")
        if tag:
            self.send_header("ETag", tag)
        if lifetime:
            self.send_header("Cache-Control", f"max-age={lifetime}")
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--outlines", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--max-age", type=int, default=20)
    parser.add_argument("--delay", type=float, default=0.02)
    parser.add_argument("--port-file", type=pathlib.Path)
    options = parser.parse_args()
    Handler.folder, Handler.outlines = options.folder, options.outlines
    Handler.max_age, Handler.delay = options.max_age, options.delay
    server = http.server.ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    server.daemon_threads = True
    if options.port_file:
        # Renamed into place, so that who waits for it never reads half a number.
        part = options.port_file.with_suffix(".part")
        part.write_text(str(server.server_port))
        os.replace(part, options.port_file)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        sys.exit(0)


main()
