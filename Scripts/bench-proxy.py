#!/usr/bin/env python3
"""Measures tileproxy beside nginx's proxy_cache and prints the table of Docs/benchmarks.md.

    bench-proxy.py TILEPROXY [--quick] [--rounds N] [--seconds S] [--only ROW,…] [--json FILE] [--work DIR] [--no-pin]
                   [--mapproxy VENV | --install-mapproxy]

One nginx worker serves static tiles; another one caches them; tileproxy caches them with one event loop, under /tiles/
and through its generic route. MapProxy with its file cache joins them in the row of warm hits, where it is installed beside
waitress (in the Python environment VENV, or in the one that runs this); --install-mapproxy fetches both with pip into an
environment in the work folder. Rounds alternate. CPU is each server's own: user and system time of its processes.
The servers run on the first processor and everything else on the second, unless there is only one.
"""
import asyncio
import os
import pathlib
import random
import re
import subprocess
import sys
import time

from bench_servers import PNG, Bench, CountingOrigin, arguments, free_port

# How many tiles the row `hot` asks for: those of zooms 6, 7 and 8 of a world map, and something in between.
HOT = [4096, 16_384, 36_864, 65_536]

CACHE = """
    proxy_cache_path {folder} levels=1:2 keys_zone=tiles:32m max_size=10g inactive=7d use_temp_path=off;
    upstream origin {{ server 127.0.0.1:{origin}; keepalive 128; keepalive_requests 100000000; }}
    upstream slow {{ server 127.0.0.1:{slow}; keepalive 128; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_cache tiles;
        location / {{ proxy_pass http://origin; }}
        location /slow/ {{ proxy_cache_lock on; proxy_pass http://slow; }}
    }}
"""


MAPPROXY = """
services:
  tms: {{use_grid_names: true, origin: nw}}
layers:
  - {{name: plain, title: plain, sources: [plain]}}
caches:
  plain:
    grids: [GLOBAL_WEBMERCATOR]
    sources: [origin]
    format: image/png
    meta_size: [1, 1]
    meta_buffer: 0
    cache: {{type: file, directory: "{work}/mapproxy", directory_layout: tc}}
sources:
  origin:
    type: tile
    grid: GLOBAL_WEBMERCATOR
    url: "http://127.0.0.1:{origin}/plain/%(z)s/%(x)s/%(y)s.png"
globals:
  cache: {{lock_dir: "{work}/mapproxy-locks"}}
"""


def find_mapproxy(options, work):
    """The Python that has MapProxy and waitress, or `None`."""
    if options.install_mapproxy:
        venv = work / "venv"
        pip = [venv / "bin" / "pip", "install", "--quiet", "MapProxy", "waitress"]
        for command in ([sys.executable, "-m", "venv", venv], pip):
            try:
                done = subprocess.run(command, capture_output=True, timeout=300)
            except subprocess.TimeoutExpired:
                return None
            if done.returncode:
                return None
        return venv / "bin" / "python"
    python = pathlib.Path(options.mapproxy) / "bin" / "python" if options.mapproxy else pathlib.Path(sys.executable)
    try:
        found = subprocess.run([python, "-c", "import mapproxy, waitress"], capture_output=True)
    except OSError:
        return None
    return python if found.returncode == 0 else None


class ProxyBench(Bench):
    header = (
        "| what | who | requests/s | CPU µs | p99 ms | CPU ratio | rate ratio | p99 ratio | target | |\n"
        "|---|---|--:|--:|--:|--:|--:|--:|---|---|")
    usual = ["warm", "hot", "same", "cold", "stampede"]

    def __init__(self, options):
        super().__init__(options, "bench-proxy")
        self.slow_port = free_port()

    def prepare(self):
        self.tiles(alike=True)
        self.origin()

    # MARK: Servers

    def nginx_cache(self):
        port = free_port()
        folder = self.work / f"nginx-{self.number}"
        text = CACHE.format(folder=folder, origin=self.origin_port, slow=self.slow_port, port=port)
        server = self.nginx("nginx", text, port, self.server_cpu)
        server.folder = folder
        return server

    def mapproxy(self):
        """MapProxy behind waitress with four threads; `None` where they are not installed."""
        python = find_mapproxy(self.options, self.work)
        if not python:
            return None
        port = free_port()
        (self.work / "mapproxy.yaml").write_text(MAPPROXY.format(work=self.work, origin=self.origin_port))
        (self.work / "tiles_app.py").write_text(
            "from mapproxy.wsgiapp import make_wsgi_app\n"
            f"application = make_wsgi_app('{self.work}/mapproxy.yaml')\n")
        serve = (
            f"import sys; sys.path.insert(0, '{self.work}'); from tiles_app import application; import waitress; "
            f"waitress.serve(application, listen='127.0.0.1:{port}', threads=4, _quiet=True)")
        return self.start("mapproxy", [str(python), "-c", serve], port, self.server_cpu)

    def tileproxy(self, memory="64MiB", name="tileproxy"):
        port = free_port()
        folder = self.work / f"tileproxy-{self.number}"
        origin, slow = (f"http://127.0.0.1:{which}" for which in (self.origin_port, self.slow_port))
        command = [self.options.tileproxy, "serve", "--cache", str(folder), "--port", str(port), "--memory", memory]
        for source in ("plain", "same", "world"):
            command += ["--source", f"{source}={origin}/{source}/{{z}}/{{x}}/{{y}}.png"]
            command += ["--upstream", f"g{source}:/{source}={origin}/{source}"]
        command += ["--source", f"slow={slow}/tile/{{z}}/{{x}}/{{y}}.png", "--upstream", f"gslow:/slow={slow}/slow"]
        server = self.start(name, command, port, self.server_cpu)
        server.folder = folder
        return server

    # MARK: Results

    def report(self, row, label, names, target, ok, against="nginx"):
        """Prints a row for each candidate; `ok` says for the three ratios whether they are good enough."""
        for name in names:
            cpu, rate, p99 = (self.median(row, name, what) for what in ("cpu", "rate", "p99"))
            line = [label, name, f"{rate:,.0f}", f"{cpu:.1f}", f"{p99 / 1000:.2f}"]
            if name == against:
                line += ["", "", "", "", ""]
            else:
                ratios = [self.ratio(row, name, against, what) for what in ("cpu", "rate", "p99")]
                verdict = ("pass" if ok(*ratios) else "MISS") if target else ""
                line += [f"{ratio:.2f}" for ratio in ratios] + [target, verdict]
            self.rows.append(line)
        self.show(len(names))

    def note(self, label, name, value, target, ok):
        self.rows.append([label, name, value, "", "", "", "", "", target, "pass" if ok else "MISS"])
        self.show(1)

    # MARK: Rows

    def world(self):
        """65,536 tiles as those of a world map at zoom 8: two thirds are one of two small ones, the rest about 2 KB."""
        draw = random.Random(8)
        empty = [PNG + draw.randbytes(95) for _ in range(2)]
        for i in range(HOT[-1]):
            # Land lies together.
            land = (i // 256 // 32 * 7 + i % 256 // 32 * 3) % 3 == 0
            body = PNG + draw.randbytes(min(20_000, int(draw.lognormvariate(7.2, 0.8)))) if land else empty[i % 7 == 0]
            path = self.files / "world" / "8" / str(i // 256) / f"{i % 256}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
            # Drawn at different times.
            os.utime(path, (time.time(), 1_700_000_000 + draw.randrange(10_000_000)))

    def hot(self):
        self.world()
        nginx, proxy = self.nginx_cache(), self.tileproxy()
        for server, prefix in ((nginx, "/world"), (proxy, "/tiles/world"), (proxy, "/world")):
            self.fill(server, prefix, count=HOT[-1])
        for count in HOT:
            candidates = [
                ("nginx", nginx, "/world"), ("tiles", proxy, "/tiles/world"), ("generic", proxy, "/world")]
            row = f"hot {count}"
            self.alternate(row, candidates, count=count)
            self.report(
                row, f"hit from memory, {count:,} tiles of a world map", [name for name, _, _ in candidates],
                "CPU <= 0.65", lambda cpu, rate, p99: cpu <= 0.65)
        self.stop(proxy, nginx)

    def warm(self):
        nginx, proxy = self.nginx_cache(), self.tileproxy()
        idle = proxy.resident()
        self.fill(proxy, "/tiles/plain")
        candidates = [
            ("nginx", nginx, "/plain"), ("tiles", proxy, "/tiles/plain"), ("generic", proxy, "/plain")]
        self.wrk(proxy, "/tiles/plain", 5)
        tiles_only = proxy.resident()
        self.fill(nginx, "/plain")
        self.fill(proxy, "/plain")
        names = [name for name, _, _ in candidates]
        mapproxy = self.mapproxy()
        if mapproxy:
            prefix = "/tiles/plain/GLOBAL_WEBMERCATOR"
            self.fill(mapproxy, prefix)
            candidates.append(("mapproxy", mapproxy, prefix))
        else:
            print("mapproxy: not installed (--install-mapproxy, or pip install MapProxy waitress)", file=sys.stderr)
        self.alternate("memory", candidates)
        self.report(
            "memory", "hit from memory", names, "CPU <= 0.75, rate >= 1.0, p99 <= 1.0",
            lambda cpu, rate, p99: cpu <= 0.75 and rate >= 1 and p99 <= 1)
        if mapproxy:
            self.report(
                "memory", "hit from its file cache", ["mapproxy"], "", lambda cpu, rate, p99: True)
            self.stop(mapproxy)
        bound, mega = 64 << 20, 1 << 20
        for name, value in (("tiles", tiles_only), ("tiles and generic", proxy.resident())):
            self.note(
                "resident memory", name, f"{value / mega:.0f} MiB ({idle / mega:.0f} empty)",
                f"<= {(bound + 40 * 10**6) / mega:.0f} MiB", value <= bound + 40 * 10**6)
        self.stop(proxy)

        proxy = self.tileproxy(memory="0")
        self.fill(proxy, "/tiles/plain", "/plain")
        candidates = [
            ("nginx", nginx, "/plain"), ("tiles", proxy, "/tiles/plain"), ("generic", proxy, "/plain")]
        self.alternate("files", candidates)
        self.report(
            "files", "hit, memory tier off", names, "CPU <= 0.95", lambda cpu, rate, p99: cpu <= 0.95)
        self.stop(proxy, nginx)

    def same(self):
        nginx, proxy, other = self.nginx_cache(), self.tileproxy(), self.tileproxy()
        self.fill(proxy, "/tiles/same")
        self.fill(other, "/tiles/plain", "/plain")
        self.fill(nginx, "/same")
        time.sleep(1)
        self.disk(proxy, nginx)
        self.fill(proxy, "/same")
        candidates = [
            ("tiles, all different", other, "/tiles/plain"), ("tiles", proxy, "/tiles/same"),
            ("generic", proxy, "/same"), ("nginx", nginx, "/same")]
        self.alternate("same", candidates)
        self.report(
            "same", "hit, 90 % identical", ["tiles, all different", "tiles"], "rate >= 1.0, CPU <= 1.0",
            lambda cpu, rate, p99: rate >= 0.98 and cpu <= 1.02, against="tiles, all different")
        self.report(
            "same", "hit, 90 % identical", ["nginx", "tiles", "generic"], "rate >= 1.0",
            lambda cpu, rate, p99: rate >= 1)
        self.stop(proxy, nginx, other)

    def disk(self, proxy, nginx):
        def blocks(folder, name="*"):
            return sum(file.stat().st_blocks * 512 for file in folder.rglob(name) if file.is_file())

        distinct = {file.read_bytes(): file for file in (self.files / "same").rglob("*.png")}
        unique = sum(file.stat().st_blocks * 512 for file in distinct.values())
        manifest = blocks(proxy.folder / "manifest")
        whole = blocks(proxy.folder)
        ratio = whole / (unique + manifest)
        self.note(
            "disk, 90 % identical", "tileproxy",
            f"{whole >> 10:,} KiB ({len(distinct):,} bodies {unique >> 10:,}, manifest and its reserve "
            f"{manifest >> 10:,}; nginx {blocks(nginx.folder) >> 10:,})",
            f"{ratio:.3f} <= 1.05", ratio <= 1.05)

    def cold(self):
        for round in range(self.options.rounds):
            nginx, tiles, generic = self.nginx_cache(), self.tileproxy(), self.tileproxy()
            candidates = [("nginx", nginx, "/plain"), ("tiles", tiles, "/tiles/plain"), ("generic", generic, "/plain")]
            for name, server, prefix in candidates if round % 2 == 0 else reversed(candidates):
                sample = self.wrk(server, prefix, 120, "once")
                self.samples.setdefault(("cold", name), []).append(sample)
            self.stop(nginx, tiles, generic)
        self.report(
            "cold", "cold fill", ["nginx", "tiles", "generic"], "rate >= 0.5", lambda cpu, rate, p99: rate >= 0.5)

    def stampede(self):
        nginx, proxy = self.nginx_cache(), self.tileproxy()
        for name, server, path in (
            ("nginx, cache lock on", nginx, "/slow/7/1/1.png"), ("tiles", proxy, "/tiles/slow/7/1/1.png"),
            ("generic", proxy, "/slow/7/1/1.png"),
        ):
            asked, answered, seconds = asyncio.run(stampede(self.slow_port, server.port, path, 1000))
            self.note(
                "1,000 clients, one cold tile", name, f"{asked} upstream, {answered} answers, {seconds:.2f} s",
                "1 upstream", asked == 1 and answered == 1000)
        self.stop(nginx, proxy)


async def stampede(origin_port, port, path, count):
    """So many connections ask for one tile at once; the origin takes a third of a second and counts."""
    origin = await CountingOrigin(0.3).start(origin_port)

    async def ask(reader, writer):
        writer.write(b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % path.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"(?i)content-length: (\d+)", head).group(1))
        got = await reader.readexactly(length)
        return head.startswith(b"HTTP/1.1 200") and got in [origin.body(path) for path in origin.asked]

    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    start = time.monotonic()
    answers = await asyncio.wait_for(asyncio.gather(*(ask(*client) for client in clients)), 60)
    seconds = time.monotonic() - start
    for _, writer in clients:
        writer.close()
    origin.server.close()
    return origin.asked.total(), sum(answers), seconds


def main():
    parser = arguments()
    parser.add_argument("tileproxy")
    parser.add_argument("--mapproxy", metavar="VENV", help="a Python environment with MapProxy and waitress")
    parser.add_argument("--install-mapproxy", action="store_true", help="fetch MapProxy with pip for this run")
    options = parser.parse_args()
    options.rounds = options.rounds or (3 if options.quick else 7)
    options.seconds = options.seconds or (2 if options.quick else 5)
    random.seed(1)
    sys.exit(ProxyBench(options).run())


main()
