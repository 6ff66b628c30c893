#!/usr/bin/env python3
"""Measures several tileproxy on one bucket and prints the table of "A fleet" in Docs/benchmarks.md.

    bench-fleet.py BIN-FOLDER [--quick] [--tiles N] [--objects N] [--rounds N] [--seconds S] [--only ROW,…] [--json FILE]
                   [--work DIR] [--keep] [--no-pin] [--strict]

Started by bench-fleet.sh, beside the S3 server of s3-server.py, which it finds by its environment. Rows:
    share    three nodes and an origin that counts, with nginx's hash of Docs/operations.md in front and without it; then a
             node that has nothing asks for what the others have put into the bucket, and one without a bucket fills from nginx
    warm     hits of a node with the bucket, and of one without
    frozen   a node under load while the server in front of the bucket is stopped by a signal
    sweep    tilegc shared sweep beside a loop of DeleteObjects
Where figures are compared they are taken in turns. CPU is the user and system time of the proxy's process. The proxies run on
the first processor, wrk and nginx on the second; the S3 server has both.
"""
import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

import botocore.config
import botocore.session

from bench_servers import COUNT, Bench, CountingOrigin, arguments, free_port
from http_client import Client
from nginx_document import block, replace

# How long the counting origin takes.
DELAY = 0.02
# Tiles that are warm in the row `frozen`; all others are misses.
HOT = 300
# Requests a second in that row.
HITS, MISSES = 500, 40
FRONT = """
    {hash}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        location / {{ proxy_pass http://tileproxies; }}
    }}
"""
# Answers of the S3 server again, as fast as those of an origin.
REPLAY = """
    proxy_cache_path {folder} keys_zone=answers:32m inactive=1d use_temp_path=off;
    upstream bucket {{ server {server}; keepalive 16; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        # It is a part of what is signed.
        proxy_set_header Host $http_host;
        proxy_cache answers;
        proxy_cache_valid 200 1d;
        proxy_ignore_headers Cache-Control Expires Vary;
        location / {{ proxy_pass http://bucket; }}
    }}
"""


def paths(count):
    return [f"/7/{i // 100}/{i % 100}.png" for i in range(count)]


async def ask(jobs, connections, rate=None):
    """Asks for (port, path) in order, over so many connections to each port, or so many times a second.

    Returns milliseconds of each. An answer that is no tile ends the run: none may be lost.
    """
    loop, jobs, took = asyncio.get_running_loop(), enumerate(jobs), []
    begun = loop.time()

    async def one():
        clients = {}
        for i, (port, path) in jobs:
            if rate:
                await asyncio.sleep(max(0, begun + i / rate - loop.time()))
            client = clients.setdefault(port, Client(port))
            start = loop.time()
            status, body, head = await client.get(f"/tiles/plain{path}")
            took.append((loop.time() - start) * 1000)
            if status != 200 or len(body) < 4000:
                raise SystemExit(f"{path} at port {port}: status {status}, {len(body)} bytes\n{head}")
        for client in clients.values():
            client.close()

    tasks = [asyncio.create_task(one()) for _ in range(connections)]
    try:
        await asyncio.wait_for(asyncio.gather(*tasks), 1800)
    finally:
        for task in tasks:
            task.cancel()
    return took


def p99(milliseconds):
    return statistics.quantiles(milliseconds, n=100, method="inclusive")[98]


class FleetBench(Bench):
    header = "| what | seen | compared with | ratio | target | |\n|---|--:|--:|--:|---|---|"
    usual = ["share", "warm", "frozen", "sweep"]

    def __init__(self, options):
        super().__init__(options, "bench-fleet")
        environment = os.environ
        self.url = f"{environment['TILE_TEST_S3']}/{environment['TILE_TEST_S3_BUCKET']}"
        self.bucket = environment["TILE_TEST_S3_BUCKET"]
        self.pid_file = pathlib.Path(environment["TILE_TEST_S3_PID"])
        environment["AWS_ACCESS_KEY_ID"] = environment["TILE_TEST_S3_ACCESS_KEY"]
        environment["AWS_SECRET_ACCESS_KEY"] = environment["TILE_TEST_S3_SECRET_KEY"]
        self.tileproxy, self.tilegc = (f"{options.bin}/{name}" for name in ("tileproxy", "tilegc"))

    def prepare(self):
        self.tiles()
        self.origin()

    # MARK: Servers

    def node(self, name, *, bucket=None, origin=None, folder=None, server=None):
        """A proxy; with a prefix in the bucket that it shares, or none; perhaps by another server in front of the bucket."""
        port = free_port()
        folder = folder or self.work / f"{name}-{self.number}"
        template = origin or f"http://127.0.0.1:{self.origin_port}/plain"
        command = [
            self.tileproxy, "serve", "--cache", str(folder), "--port", str(port),
            "--source", f"plain={template}/{{z}}/{{x}}/{{y}}.png"]
        if bucket:
            command += ["--shared", f"{server.url if server else os.environ['TILE_TEST_S3']}/{self.bucket}/{bucket}"]
        server = self.start(name, command, port, self.server_cpu)
        server.folder = folder
        if bucket:
            self.wait(server, "knows the bucket", lambda shared: shared["state"] == "ok")
        return server

    def stats(self, node):
        with urllib.request.urlopen(f"{node.url}/_tileproxy/stats.json", timeout=60) as answer:
            return json.load(answer)["shared"]

    def wait(self, node, what, is_so, seconds=180):
        """Until what a node says of the bucket is so."""
        end = time.monotonic() + seconds
        while not is_so(found := self.stats(node)):
            if time.monotonic() > end:
                raise SystemExit(f"{node.name}: after {seconds} s it is not so that it {what}: {found}")
            time.sleep(0.1)

    def drain(self, *nodes):
        for node in nodes:
            self.wait(node, "has written everything", lambda shared: shared["waiting"] == 0)

    def front(self, nodes):
        """nginx with the hash of the document in front of nodes."""
        places = [(f"10.0.0.1{i + 1}:8080", f"127.0.0.1:{node.port}") for i, node in enumerate(nodes)]
        port = free_port()
        text = FRONT.format(hash=replace(block("upstream tileproxies"), places), port=port)
        return self.nginx("front", text, port, self.client_cpu)

    def replay(self):
        """nginx, which asks the S3 server for each object once."""
        port = free_port()
        server = os.environ["TILE_TEST_S3"].removeprefix("http://")
        text = REPLAY.format(folder=self.work / "answers", server=server, port=port)
        return self.nginx("replay", text, port, self.client_cpu)

    def client(self):
        config = botocore.config.Config(
            s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, read_timeout=600, max_pool_connections=16)
        return botocore.session.Session().create_client(
            "s3", endpoint_url=os.environ["TILE_TEST_S3"], region_name="us-east-1",
            aws_access_key_id=os.environ["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"], config=config)

    # MARK: Results

    def row(self, what, seen, other="", ratio="", target="", passed=None):
        """A row of the table; `passed` is `None` where there is no target."""
        self.rows.append([what, seen, other, ratio, target, {None: "", True: "pass", False: "MISS"}[passed]])
        self.show(1)

    def tell(self, what, nodes):
        """What nodes say of the bucket, for whoever wonders about a figure."""
        total = {}
        for node in nodes:
            for name, value in self.stats(node).items():
                if isinstance(value, int):
                    total[name] = total.get(name, 0) + value
        print(f"{what}: " + ", ".join(f"{name} {value}" for name, value in total.items()), file=sys.stderr)
        return total

    # MARK: Many nodes, one origin

    def share(self):
        asyncio.run(self.share_all())

    async def share_all(self):
        count = self.options.tiles
        origin = await CountingOrigin(DELAY).start()
        for name, label, limit in (
            ("hashed", "with nginx's hash in front", 1.0), ("unhashed", "without it", 1.05),
        ):
            nodes = [self.node(f"{name}{i}", bucket=name, origin=f"http://127.0.0.1:{origin.port}") for i in range(3)]
            ports = [node.port for node in nodes]
            if name == "hashed":
                nodes.append(self.front(nodes))
                ports = [nodes[3].port] * 3
            jobs = [(port, path) for path in paths(count) for port in ports]
            random.shuffle(jobs)
            origin.asked.clear()
            begun = time.monotonic()
            for i in range(0, len(jobs), 300):
                await ask(jobs[i:i + 300], self.options.connections)
                # No more than the bucket can take: a node would drop what waits for too long, and leave a bucket alone that is
                # too slow. Small figures of requests a second are the server's.
                self.drain(*nodes[:3])
            seconds = time.monotonic() - begun
            told = self.tell(f"{name}: {len(jobs) / seconds:,.0f} requests/s; the bucket", nodes[:3])
            asked = origin.asked.total()
            self.samples["share", name] = [{"asked": asked, "tiles": count, "seconds": seconds, **told}]
            self.row(
                f"requests at the origin, three nodes, {count:,} tiles asked for by all at random, {label}", f"{asked:,}",
                f"{len(origin.asked):,} tiles", f"{asked / count:.3f}", f"<= {limit:.2f}", asked <= limit * count)
            self.stop(*nodes)
            if name == "hashed":
                await self.hit(origin, told)
        origin.server.close()

    async def hit(self, origin, told):
        """A node that has nothing, on what the others have stored; beside one that fills from nginx, at the same pace."""
        count, url, replay = self.options.tiles, f"http://127.0.0.1:{origin.port}", self.replay()
        stored, plain = self.node("hit", bucket="hashed", origin=url, server=replay), self.node("cold")
        origin.asked.clear()
        wanted = paths(count)
        random.shuffle(wanted)
        parts = [wanted[i::4] for i in range(4)]
        for part in parts:
            rate = None
            # A quarter is enough of what nobody counts.
            for name, node, some in (("hit", stored, part), ("cold", plain, part[::4])):
                node.level()
                cpu, begun = node.cpu(), time.monotonic()
                await ask([(node.port, path) for path in some], 8, rate)
                rate = len(some) / (time.monotonic() - begun)
                sample = {"cpu": (node.cpu() - cpu) / len(some) * 1e6, "rate": rate}
                self.samples.setdefault(("hit", name), []).append(sample)
        found = self.tell("hit: the bucket", [stored])
        asked = origin.asked.total()
        what = f"hits of a node on what others stored, {count:,} tiles: requests at the origin"
        if told["dropped"]:
            what += f" ({told['dropped']:,} were not written by those)"
        self.row(what, f"{asked:,}", "", "", "0", asked == 0 and found["hits"] == count)
        self.stop(stored, plain)
        cpu, floor = (self.median("hit", name, "cpu") for name in ("hit", "cold"))
        self.row(
            f"... CPU of the proxy a tile, beside a cold fill from nginx, both {self.median('hit', 'hit', 'rate'):,.0f} a second",
            f"{cpu:.0f} µs", f"{floor:.0f} µs", f"{self.ratio('hit', 'hit', 'cold', 'cpu'):.2f}")
        # At full speed, with the server's answers from nginx's cache.
        for round in range(2 if self.options.quick else 3):
            fast = {"fast hit": self.node("hit", bucket="hashed", origin=url, server=replay), "fast cold": self.node("cold")}
            for name, node in fast.items() if round % 2 == 0 else reversed(fast.items()):
                # The counting origin would hang while this waits.
                sample = await asyncio.to_thread(self.wrk, node, "/tiles/plain", 120, "once", count=count)
                self.samples.setdefault(("hit", name), []).append(sample)
            self.tell("fast hit: the bucket", [fast["fast hit"]])
            self.stop(*fast.values())
        cpu, floor = (self.median("hit", name, "cpu") for name in ("fast hit", "fast cold"))
        rates = [self.median("hit", name, "rate") for name in ("fast hit", "fast cold")]
        ratio = self.ratio("hit", "fast hit", "fast cold", "cpu")
        self.row(
            f"... both at full speed, {rates[0]:,.0f} and {rates[1]:,.0f} a second, the bucket's answers from nginx's cache",
            f"{cpu:.0f} µs", f"{floor:.0f} µs", f"{ratio:.2f}", "<= 2", ratio <= 2)
        self.stop(replay)

    # MARK: Local hits

    def warm(self):
        # Filled without the bucket, so that nothing waits to be written.
        folders = []
        for name in ("off", "on"):
            node = self.node(name)
            self.fill(node, "/tiles/plain")
            folders.append(node.folder)
            self.stop(node)
        # A mark, though of another source: an index with nothing in it would be too easy.
        subprocess.run(
            [self.tilegc, "shared", "expire", f"{self.url}/warm", "--source", "other", "--bbox", "5,44,17,48"], check=True,
            stdout=subprocess.DEVNULL, timeout=120)
        off, on = self.node("off", folder=folders[0]), self.node("on", bucket="warm", folder=folders[1])
        self.alternate("warm", [("off", off, "/tiles/plain"), ("on", on, "/tiles/plain")])
        told = self.tell("warm: the bucket", [on])
        # wrk stops filling when as many answers are there as there are tiles, a few of them of the last one.
        if told["hits"] + told["misses"] + told["skipped"] > 32:
            raise SystemExit("warm: many of the tiles were no local hits")
        for name, label, unit, limit in (
            ("cpu", "CPU a request", " µs", "<= 1.03"), ("rate", "requests a second", "", ">= 0.97"),
        ):
            ours, floor = (self.median("warm", who, name) for who in ("on", "off"))
            ratio = self.ratio("warm", "on", "off", name)
            digits = 2 if unit else 0
            self.row(
                f"hit from memory with the bucket, beside one without: {label}", f"{ours:,.{digits}f}{unit}",
                f"{floor:,.{digits}f}{unit}", f"{ratio:.3f}", limit, ratio <= 1.03 if unit else ratio >= 0.97)
        self.stop(off, on)

    # MARK: A bucket that hangs

    def frozen(self):
        asyncio.run(self.frozen_all())

    async def frozen_all(self):
        off, on = self.node("off"), self.node("on", bucket="frozen")
        misses = itertools.cycle(paths(COUNT)[HOT:])
        for node in (off, on):
            await ask([(node.port, path) for path in paths(HOT)], 8)
        rounds = 1 if self.options.quick else 3
        for _ in range(rounds):
            self.drain(on)
            await self.under_load("origin", off, 5, misses)
            await self.under_load("before", on, 5, misses)
            with self.stopped_server():
                await self.under_load("first", on, 3, misses)
                await self.under_load("then", on, 6, misses)
            await self.thaw(on, misses)
        self.tell("frozen: the bucket", [on])
        for name, label in (("first", "the first 3 s"), ("then", "the next 6 s")):
            hits = [self.median("frozen", who, "hit") for who in (name, "before")]
            ratio = self.ratio("frozen", name, "before", "hit")
            self.row(
                f"bucket frozen, {label}: p99 of local hits, beside before", f"{hits[0]:.2f} ms", f"{hits[1]:.2f} ms",
                f"{ratio:.2f}", "<= 1.25", ratio <= 1.25)
        for name, label, more in (("first", "the first 3 s", 1100), ("then", "the next 6 s", 10)):
            missed, floor = (self.median("frozen", who, "miss") for who in (name, "origin"))
            self.row(
                f"bucket frozen, {label}: p99 of misses, beside the origin's", f"{missed:.1f} ms", f"{floor:.1f} ms", "",
                f"<= {more:,} ms more", missed <= floor + more)
        missed, floor = (self.median("frozen", who, "miss") for who in ("before", "origin"))
        self.row("before it, the same", f"{missed:.1f} ms", f"{floor:.1f} ms")
        self.stop(off, on)

    async def under_load(self, name, node, seconds, misses):
        """Hits by wrk and misses for some seconds, both at a rate that leaves the processors time."""
        connections = 5
        pause = round(1000 * connections / HITS)
        jobs = [(node.port, path) for path in itertools.islice(misses, seconds * MISSES)]
        hits, took = await asyncio.gather(
            asyncio.to_thread(
                self.wrk, node, "/tiles/plain", seconds, connections=connections, count=HOT, pause=pause),
            ask(jobs, 64, MISSES))
        sample = {"hit": hits["p99"] / 1000, "miss": p99(took), "most": max(took)}
        self.samples.setdefault(("frozen", name), []).append(sample)

    async def thaw(self, node, misses):
        """Until the bucket is used again, which a node finds out by looking for tiles."""
        end = time.monotonic() + 120
        while self.stats(node)["state"] != "ok":
            if time.monotonic() > end:
                raise SystemExit(f"{node.name} leaves the bucket alone for ever: {self.stats(node)}")
            await ask([(node.port, next(misses))], 1)
            await asyncio.sleep(0.5)

    @contextlib.contextmanager
    def stopped_server(self):
        """The server in front of the bucket takes connections, and says nothing."""
        server = int(self.pid_file.read_text())
        os.kill(server, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(server, signal.SIGCONT)

    # MARK: Sweeping

    def sweep(self):
        count, client = self.options.objects, self.client()
        for _ in range(2):
            for name in ("loop", "sweep"):
                keys = self.put_objects(client, f"{name}/v1", count)
                # Times in the bucket are whole seconds.
                time.sleep(2)
                begun = time.monotonic()
                if name == "loop":
                    for i in range(0, count, 1000):
                        objects = [{"Key": key} for key in keys[i:i + 1000]]
                        answer = client.delete_objects(Bucket=self.bucket, Delete={"Objects": objects, "Quiet": True})
                        if answer.get("Errors"):
                            raise SystemExit(f"DeleteObjects: {answer['Errors'][:3]}")
                else:
                    done = subprocess.run(
                        [self.tilegc, "shared", "sweep", f"{self.url}/{name}", "--older-than", "0s", "--json"],
                        capture_output=True, text=True, timeout=24 * 3600)
                    if done.returncode or json.loads(done.stdout)["deleted"] != count:
                        raise SystemExit(f"tilegc shared sweep: {done.returncode} {done.stdout}{done.stderr}")
                rate = count / (time.monotonic() - begun)
                self.samples.setdefault(("sweep", name), []).append({"rate": rate, "objects": count})
        ours, floor = (self.median("sweep", name, "rate") for name in ("sweep", "loop"))
        ratio = self.ratio("sweep", "sweep", "loop", "rate")
        self.row(
            f"tilegc shared sweep, twice {count:,} objects, beside DeleteObjects of 1,000", f"{ours:,.0f}/s", f"{floor:,.0f}/s",
            f"{ratio:.2f}", ">= 0.8", ratio >= 0.8)

    def put_objects(self, client, prefix, count):
        """Objects with the names of tiles, over eight connections."""
        keys, rest = [], iter(range(count))
        failures = []

        def put():
            # Taking from a range's iterator is one step of the interpreter.
            for i in rest:
                x, y = divmod(i, 1 << 12)
                part = hashlib.sha256(f"bench/20/{x}/{y}".encode()).hexdigest()[:2]
                key = f"{prefix}/bench-0123456789abcdef/0-00000000/20/{part}/{x}/{y}"
                try:
                    client.put_object(Bucket=self.bucket, Key=key, Body=b"tile")
                except Exception as error:
                    failures.append(error)
                    return
                keys.append(key)

        threads = [threading.Thread(target=put) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise SystemExit(f"PUT: {failures[0]}")
        return keys


def main():
    parser = arguments()
    parser.add_argument("bin", help="the folder of tileproxy and tilegc")
    parser.add_argument("--tiles", type=int, help="tiles of the row `share`")
    parser.add_argument("--objects", type=int, help="objects that the row `sweep` deletes at a time")
    parser.add_argument("--connections", type=int, default=4, help="clients of the row `share`")
    options = parser.parse_args()
    if "TILE_TEST_S3" not in os.environ:
        parser.error("there is no S3 server; run it by Scripts/bench-fleet.sh")
    options.rounds = options.rounds or (3 if options.quick else 11)
    options.seconds = options.seconds or 2
    options.tiles = min(options.tiles or (1000 if options.quick else COUNT), COUNT)
    options.objects = options.objects or (500 if options.quick else 1000)
    random.seed(1)
    sys.exit(FleetBench(options).run())


main()
