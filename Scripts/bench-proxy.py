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
import argparse
import asyncio
import json
import os
import pathlib
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
COUNT = 10_000
# How many tiles the row `hot` asks for: those of zooms 6, 7 and 8 of a world map, and something in between.
HOT = [4096, 16_384, 36_864, 65_536]
TICK = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A process, or nginx's master with its worker, and what it has used."""

    def __init__(self, name, command, port, log, cpu):
        self.name, self.port = name, port
        self.url = f"http://127.0.0.1:{port}"
        with open(log, "ab") as output:
            self.process = subprocess.Popen(pin(cpu) + command, stdout=output, stderr=output)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        else:
            raise SystemExit(f"{name} does not listen; see {log}")
        if self.process.poll() is not None:
            raise SystemExit(f"{name} ended at once; see {log}:\n" + pathlib.Path(log).read_text()[-2000:])

    @property
    def pids(self):
        workers = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in workers] or [self.process.pid]

    def cpu(self):
        """Seconds of user and system time."""
        total = 0
        for pid in self.pids:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / TICK

    def level(self):
        """Gives all threads the priority of this script: libdispatch sets that of its threads to what it thinks best."""
        own = os.getpriority(os.PRIO_PROCESS, 0)
        for pid in self.pids:
            for thread in os.listdir(f"/proc/{pid}/task"):
                try:
                    os.setpriority(os.PRIO_PROCESS, int(thread), own)
                except OSError:
                    # It has ended, or has less of a right to go on than this script: then nothing is to be done.
                    pass

    def resident(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text).group(1)) * 1024

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=40)


def pin(cpu):
    return ["taskset", "-c", str(cpu)] if cpu is not None else []


NGINX = """
worker_processes 1;
daemon off;
error_log {work}/{name}-error.log;
pid {work}/{name}.pid;
worker_rlimit_nofile 20000;
events {{ worker_connections 8192; }}
http {{
    types {{ image/png png; }}
    access_log off;
    sendfile on;
    tcp_nodelay on;
    keepalive_timeout 75s;
    keepalive_requests 100000000;
    client_body_temp_path {work}/{name}-body;
    proxy_temp_path {work}/{name}-temp;
    fastcgi_temp_path {work}/{name}-fcgi;
    uwsgi_temp_path {work}/{name}-uwsgi;
    scgi_temp_path {work}/{name}-scgi;
    {http}
}}
"""

ORIGIN = """
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        root {root};
        add_header Cache-Control "max-age=604800";
    }}
"""

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


class Bench:
    def __init__(self, options):
        self.options = options
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="bench-proxy-", dir=options.work))
        self.work.chmod(0o755)
        # The origin's tiles are no part of what is measured: they are in memory where that is possible.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else options.work
        self.files = pathlib.Path(tempfile.mkdtemp(prefix="bench-proxy-", dir=memory))
        self.files.chmod(0o755)
        several = os.cpu_count() > 1 and not options.no_pin
        self.server_cpu, self.client_cpu = (0, 1) if several else (None, None)
        self.running = []
        self.number = 0
        self.samples = {}
        self.ports = {"origin": free_port(), "slow": free_port()}
        self.rows = []

    # MARK: Servers

    def start(self, name, command, port, cpu):
        self.number += 1
        server = Server(name, command, port, self.work / f"{name}-{self.number}.log", cpu)
        self.running.append(server)
        return server

    def stop(self, *servers):
        for server in servers:
            if server in self.running:
                self.running.remove(server)
                server.stop()

    def nginx(self, name, text, port, cpu):
        config = self.work / f"{name}-{self.number}.conf"
        user = "user root;" if os.geteuid() == 0 else ""
        config.write_text(user + NGINX.format(work=self.work, name=name, http=text))
        return self.start(name, ["nginx", "-p", str(self.work), "-c", str(config)], port, cpu)

    def origin(self):
        port = self.ports["origin"]
        return self.nginx("origin", ORIGIN.format(port=port, root=self.files), port, self.client_cpu)

    def nginx_cache(self):
        port = free_port()
        folder = self.work / f"nginx-{self.number}"
        text = CACHE.format(folder=folder, origin=self.ports["origin"], slow=self.ports["slow"], port=port)
        server = self.nginx("nginx", text, port, self.server_cpu)
        server.folder = folder
        return server

    def mapproxy(self):
        """MapProxy behind waitress with four threads; `None` where they are not installed."""
        python = find_mapproxy(self.options, self.work)
        if not python:
            return None
        port = free_port()
        (self.work / "mapproxy.yaml").write_text(MAPPROXY.format(work=self.work, origin=self.ports["origin"]))
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
        origin, slow = (f"http://127.0.0.1:{self.ports[which]}" for which in ("origin", "slow"))
        command = [self.options.tileproxy, "serve", "--cache", str(folder), "--port", str(port), "--memory", memory]
        for source in ("plain", "same", "world"):
            command += ["--source", f"{source}={origin}/{source}/{{z}}/{{x}}/{{y}}.png"]
            command += ["--upstream", f"g{source}:/{source}={origin}/{source}"]
        command += ["--source", f"slow={slow}/tile/{{z}}/{{x}}/{{y}}.png", "--upstream", f"gslow:/slow={slow}/slow"]
        server = self.start(name, command, port, self.server_cpu)
        server.folder = folder
        return server

    # MARK: Load

    def wrk(self, server, prefix, seconds, order="random", connections=32, count=COUNT):
        """Runs wrk; what it saw, and what the server used for it."""
        zoom, wide = (7, 100) if prefix.endswith(("plain", "same")) else (8, 256)
        environment = dict(
            os.environ, PREFIX=prefix, COUNT=str(count), ORDER=order, SEED=str(random.randrange(1 << 30)),
            ZOOM=str(zoom), WIDE=str(wide))
        command = pin(self.client_cpu) + [
            "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "20s", "--latency", "-s",
            str(HERE / "bench-proxy.lua"), server.url]
        server.level()
        before = server.cpu()
        output = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds + 60)
        used = server.cpu() - before
        found = re.search(r"JSON (.*)", output.stdout)
        if not found:
            raise SystemExit(f"wrk failed: {output.stdout}{output.stderr}")
        result = json.loads(found.group(1))
        if order == "once":
            # Some requests more may be under way when the last tile comes; they are hits, and few.
            result["seconds"] = float((re.search(r"ONCE (.*)", output.stdout) or [0, "nan"])[1])
        if result["failed"] or not result["seconds"] > 0:
            raise SystemExit(f"{server.name} {prefix}: {result} {output.stdout}")
        return {
            "rate": result["requests"] / result["seconds"], "cpu": used / result["requests"] * 1e6,
            "p99": result["p99"], "p50": result["p50"]}

    def fill(self, server, *prefixes, count=COUNT):
        for prefix in prefixes:
            self.wrk(server, prefix, 300, "once", count=count)

    def alternate(self, row, candidates, seconds=None, count=COUNT):
        """Measures (name, server, prefix) in turns, to and fro."""
        seconds = seconds or self.options.seconds
        for name, server, prefix in candidates:
            # Each tile once, so that all are warm however slow the machine is at the moment.
            self.fill(server, prefix, count=count)
            self.wrk(server, prefix, 1, count=count)
        for round in range(self.options.rounds):
            for name, server, prefix in candidates if round % 2 == 0 else reversed(candidates):
                sample = self.wrk(server, prefix, seconds, count=count)
                self.samples.setdefault((row, name), []).append(sample)

    # MARK: Results

    def median(self, row, name, what):
        return statistics.median(sample[what] for sample in self.samples[row, name])

    def ratio(self, row, name, other, what):
        """The median of the ratios within each round."""
        pairs = zip(self.samples[row, name], self.samples[row, other])
        return statistics.median(a[what] / b[what] for a, b in pairs)

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

    def show(self, count):
        for row in self.rows[-count:]:
            print("| " + " | ".join(row) + " |", flush=True)

    # MARK: Rows

    def tiles(self):
        """10,000 tiles of about 5 KB, all different; and the same with nine in ten alike."""
        draw = random.Random(4)
        head = bytes([0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A])
        sea = head + draw.randbytes(5000)
        for i in range(COUNT):
            body = head + draw.randbytes(draw.randrange(4600, 5400))
            for folder, bytes_ in (("plain", body), ("same", body if i % 10 == 0 else sea)):
                path = self.files / folder / "7" / str(i // 100) / f"{i % 100}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(bytes_)

    def world(self):
        """65,536 tiles as those of a world map at zoom 8: two thirds are one of two small ones, the rest about 2 KB."""
        draw = random.Random(8)
        head = bytes([0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A])
        empty = [head + draw.randbytes(95) for _ in range(2)]
        for i in range(HOT[-1]):
            # Land lies together.
            land = (i // 256 // 32 * 7 + i % 256 // 32 * 3) % 3 == 0
            body = head + draw.randbytes(min(20_000, int(draw.lognormvariate(7.2, 0.8)))) if land else empty[i % 7 == 0]
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
            asked, answered, seconds = asyncio.run(stampede(self.ports["slow"], server.port, path, 1000))
            self.note(
                "1,000 clients, one cold tile", name, f"{asked} upstream, {answered} answers, {seconds:.2f} s",
                "1 upstream", asked == 1 and answered == 1000)
        self.stop(nginx, proxy)

    def run(self):
        print(f"work folder: {self.work}", flush=True)
        wanted = self.options.only.split(",") if self.options.only else ["warm", "hot", "same", "cold", "stampede"]
        try:
            self.tiles()
            origin = self.origin()
            print("| what | who | requests/s | CPU µs | p99 ms | CPU ratio | rate ratio | p99 ratio | target | |")
            print("|---|---|--:|--:|--:|--:|--:|--:|---|---|", flush=True)
            for row in wanted:
                getattr(self, row)()
            self.stop(origin)
        finally:
            self.stop(*list(self.running))
            if self.options.json:
                samples = [
                    {"row": row, "who": name, "samples": found} for (row, name), found in self.samples.items()]
                pathlib.Path(self.options.json).write_text(json.dumps(samples, indent=1))
            shutil.rmtree(self.files, ignore_errors=True)
            if not self.options.keep:
                shutil.rmtree(self.work, ignore_errors=True)
        return 1 if self.options.strict and any(row[-1] == "MISS" for row in self.rows) else 0


async def stampede(origin_port, port, path, count):
    """So many connections ask for one tile at once; the origin takes a third of a second and counts."""
    asked = 0
    body = bytes([0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]) + bytes(5000)

    async def serve(reader, writer):
        nonlocal asked
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                asked += 1
                await asyncio.sleep(0.3)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nCache-Control: max-age=600\r\n"
                    b"Content-Length: %d\r\n\r\n" % len(body) + body)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        writer.close()

    async def ask(reader, writer):
        writer.write(b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % path.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"(?i)content-length: (\d+)", head).group(1))
        got = await reader.readexactly(length)
        return head.startswith(b"HTTP/1.1 200") and got == body

    server = await asyncio.start_server(serve, "127.0.0.1", origin_port)
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    start = time.monotonic()
    answers = await asyncio.wait_for(asyncio.gather(*(ask(*client) for client in clients)), 60)
    seconds = time.monotonic() - start
    for _, writer in clients:
        writer.close()
    server.close()
    return asked, sum(answers), seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tileproxy")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    parser.add_argument("--work")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--no-pin", action="store_true")
    parser.add_argument("--mapproxy", metavar="VENV", help="a Python environment with MapProxy and waitress")
    parser.add_argument("--install-mapproxy", action="store_true", help="fetch MapProxy with pip for this run")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a row misses its target")
    options = parser.parse_args()
    options.rounds = options.rounds or (3 if options.quick else 7)
    options.seconds = options.seconds or (2 if options.quick else 5)
    random.seed(1)
    sys.exit(Bench(options).run())


main()
