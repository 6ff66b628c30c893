"""Servers, load and results that bench-proxy.py and bench-fleet.py share."""
import argparse
import asyncio
import collections
import ctypes
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
COUNT = 10_000
TICK = os.sysconf("SC_CLK_TCK")
PNG = bytes([0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A])


LIBC = ctypes.CDLL(None)


def end_with_parent():
    """Run in a process that is about to become a server: it is told to end when this script is gone, however that ends."""
    PR_SET_PDEATHSIG = 1
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


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
            self.process = subprocess.Popen(pin(cpu) + command, stdout=output, stderr=output, preexec_fn=end_with_parent)
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
        try:
            self.process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            print(f"{self.name} did not end when it was told to, and was killed", file=sys.stderr)


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


class CountingOrigin:
    """A tile server that counts the requests for each path, and takes its time for each; on the event loop of who starts it."""

    def __init__(self, delay):
        self.delay, self.asked = delay, collections.Counter()

    async def start(self, port=0):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", port, backlog=1024)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    @staticmethod
    def body(path):
        """5 KB that no other tile has."""
        return PNG + path.encode().ljust(5000, b".")

    async def serve(self, reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split(b" ", 2)[1].decode("latin-1")
                self.asked[path] += 1
                await asyncio.sleep(self.delay)
                body = self.body(path)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nCache-Control: max-age=604800\r\n"
                    b"Content-Length: %d\r\n\r\n" % len(body) + body)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        writer.close()


class Bench:
    """What is started, asked and found out; its subclasses have the rows, as methods."""

    # The table's head; and the rows that are measured unless others are wanted, by their methods' names.
    header = ""
    usual = []

    def __init__(self, options, name):
        self.options = options
        self.work = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=options.work))
        self.work.chmod(0o755)
        # The origin's tiles are no part of what is measured: they are in memory where that is possible.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else options.work
        self.files = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=memory))
        self.files.chmod(0o755)
        several = os.cpu_count() > 1 and not options.no_pin
        self.server_cpu, self.client_cpu = (0, 1) if several else (None, None)
        self.running = []
        self.number = 0
        self.samples = {}
        self.origin_port = free_port()
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
        port = self.origin_port
        return self.nginx("origin", ORIGIN.format(port=port, root=self.files), port, self.client_cpu)

    # MARK: Load

    def wrk(self, server, prefix, seconds, order="random", connections=32, count=COUNT, pause=0):
        """Runs wrk; what it saw, and what the server used for it.

        Each connection waits for so many milliseconds before it asks again.
        """
        zoom, wide = (7, 100) if prefix.endswith(("plain", "same")) else (8, 256)
        environment = dict(
            os.environ, PREFIX=prefix, COUNT=str(count), ORDER=order, SEED=str(random.randrange(1 << 30)),
            ZOOM=str(zoom), WIDE=str(wide), PAUSE=str(pause))
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

    def show(self, count):
        for row in self.rows[-count:]:
            print("| " + " | ".join(row) + " |", flush=True)

    # MARK: Running

    def tiles(self, *, alike=False):
        """10,000 tiles of about 5 KB, all different; and the same with nine in ten alike, where those are wanted."""
        draw = random.Random(4)
        sea = PNG + draw.randbytes(5000)
        for i in range(COUNT):
            body = PNG + draw.randbytes(draw.randrange(4600, 5400))
            for folder, bytes_ in (("plain", body), ("same", body if i % 10 == 0 else sea))[:2 if alike else 1]:
                path = self.files / folder / "7" / str(i // 100) / f"{i % 100}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(bytes_)

    def run(self):
        """Measures the rows; the status to end with."""
        # Servers are stopped then too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        print(f"work folder: {self.work}", flush=True)
        try:
            self.prepare()
            print(self.header, flush=True)
            for row in self.options.only.split(",") if self.options.only else self.usual:
                getattr(self, row)()
        finally:
            # Told to end is told once: the servers must be stopped all the same.
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            self.stop(*list(self.running))
            if self.options.json:
                samples = [
                    {"row": row, "who": name, "samples": found} for (row, name), found in self.samples.items()]
                pathlib.Path(self.options.json).write_text(json.dumps(samples, indent=1))
            shutil.rmtree(self.files, ignore_errors=True)
            if not self.options.keep:
                shutil.rmtree(self.work, ignore_errors=True)
        return 1 if self.options.strict and any(row[-1] == "MISS" for row in self.rows) else 0


def arguments():
    """A parser of the options that both have."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    parser.add_argument("--work")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--no-pin", action="store_true")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a row misses its target")
    return parser
