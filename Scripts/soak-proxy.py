#!/usr/bin/env python3
"""Runs tileproxy in front of an origin that fails, for a while, and checks every answer. See soak-proxy.sh.

    soak-proxy.py BIN-FOLDER [--minutes 30] [--work DIR] [--rate N]

Origin and clients are one process, so that every error can be looked into: right after one, the origin is told to fail
for that URL and the proxy is asked once more. An answer then means that the cache had one the first time too. Each URL
has one request under way at most, so nobody else can have brought it in between.
"""
import argparse
import asyncio
import collections
import hashlib
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

from http_client import Client

TILES = 20_000
LIFETIME = 20  # seconds that a tile is fresh
EDITION = 60  # seconds after which a fifth of the tiles changes
CLIENTS = 32
PNG = bytes([0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A])
FILLER = random.Random(1).randbytes(1 << 16)


def body(number, edition):
    """A tile of about 5 KB; one in three is the same sea."""
    if number % 3 == 0:
        return PNG + FILLER[:5000]
    if number % 5 != 1:
        edition = 0
    text = b"tile %d edition %d " % (number, edition)
    mark = hashlib.sha256(text).digest()
    start = number % 50_000
    return PNG + text + mark + FILLER[start:start + 4600 + number % 800]


def is_right(number, got, now):
    """Whether a body is one that the origin has sent at some time."""
    match = re.match(rb"tile \d+ edition (\d+) ", got[len(PNG):])
    edition = int(match.group(1)) if match else 0
    return edition <= now and got == body(number, edition)


class Origin:
    """Serves tiles, and fails one time in twenty: an error, no word, a death in mid-body, a long pause."""

    def __init__(self):
        self.counts = collections.Counter()
        self.broken = set()
        self.truncated = set()
        self.random = random.Random(2)
        self.start = time.monotonic()

    @property
    def edition(self):
        return int((time.monotonic() - self.start) / EDITION)

    async def serve(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                if not await self.answer(head, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        writer.close()

    async def answer(self, head, writer):
        path = head.split(" ", 2)[1]
        column, row = re.search(r"/8/(\d+)/(\d+)\.png", path).groups()
        number = int(column) * 100 + int(row)
        self.counts["requests"] += 1
        if path in self.broken:
            self.counts["told to fail"] += 1
            writer.write(b"HTTP/1.1 500 Told To\r\nContent-Length: 0\r\n\r\n")
            return True
        fate = self.random.random()
        if fate < 0.02:
            self.counts["500"] += 1
            writer.write(b"HTTP/1.1 500 Oops\r\nContent-Length: 5\r\n\r\noops\n")
            return True
        if fate < 0.03:
            self.counts["no word"] += 1
            return False
        data = body(number, self.edition)
        tag = '"' + hashlib.sha256(data).hexdigest()[:16] + '"'
        fields = f"ETag: {tag}\r\nCache-Control: max-age={LIFETIME}, stale-if-error=86400\r\n"
        if f"If-None-Match: {tag}".lower() in head.lower():
            self.counts["304"] += 1
            writer.write(f"HTTP/1.1 304 Not Modified\r\n{fields}\r\n".encode())
            return True
        head = f"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n{fields}Content-Length: {len(data)}\r\n\r\n".encode()
        if fate < 0.04:
            self.counts["died in mid-body"] += 1
            self.truncated.add(path)
            writer.write(head + data[:2000])
            await writer.drain()
            return False
        if fate < 0.05:
            self.counts["slow"] += 1
            writer.write(head + data[:2000])
            await asyncio.sleep(2)
            writer.write(data[2000:])
            return True
        self.counts["200"] += 1
        writer.write(head + data)
        return True


class Soak:
    def __init__(self, options):
        self.options = options
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="soak-proxy-", dir=options.work))
        self.counts = collections.Counter()
        self.problems = []
        self.busy = set()
        self.random = random.Random(3)
        self.origin = Origin()
        self.memory = []
        self.descriptors = []
        self.rate = None
        self.asked = 0

    def problem(self, text):
        self.counts["PROBLEM"] += 1
        if len(self.problems) < 20:
            self.problems.append(text)
            print("PROBLEM: " + text, flush=True)

    def start(self, origin_port):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        base = f"http://127.0.0.1:{origin_port}"
        self.log = open(self.work / "proxy.log", "wb")
        self.proxy = subprocess.Popen(
            [f"{self.options.bin}/tileproxy", "serve", "--cache", str(self.work / "cache"), "--port", str(self.port),
             "--max-bytes", "16MiB", "--memory", "4MiB", "--source", f"soak={base}/{{z}}/{{x}}/{{y}}.png",
             "--upstream", f"generic:/g={base}/g"],
            stdout=self.log, stderr=self.log)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.05)
        raise SystemExit("tileproxy does not listen: " + (self.work / "proxy.log").read_text())

    def path(self):
        """Some tiles are asked for much more often than others, as on a map."""
        number = min(int(self.random.paretovariate(0.35)) - 1, TILES * 50) % TILES
        place = f"8/{number // 100}/{number % 100}.png"
        prefix = "/tiles/soak/" if self.random.random() < 0.6 else "/g/"
        return number, prefix + place

    async def one(self, client):
        number, path = self.path()
        if path in self.busy:
            return
        self.busy.add(path)
        try:
            status, data, head = await client.get(path)
            self.counts[self.kind(path, status, head)] += 1
            if status == 200:
                if not is_right(number, data, self.origin.edition):
                    self.problem(f"{path}: a wrong body of {len(data)} bytes")
            else:
                await self.look_into(client, number, path, status)
        finally:
            self.busy.discard(path)

    def kind(self, path, status, head):
        route = "tile" if path.startswith("/tiles") else "generic"
        if status != 200:
            return f"{route} {status if status > 0 else 'broken off'}"
        found = re.search(r"(?i)\r\ncache-status: tileproxy; ([^\r;]*)(;[^\r]*detail)?", head)
        return f"{route} 200 {found.group(1) if found else '?'}{' (stale: the origin failed)' if found and found.group(2) else ''}"

    async def look_into(self, client, number, path, status):
        """An error: would the cache have had an answer?"""
        own = path.replace("/tiles/soak", "") if path.startswith("/tiles") else path
        was_cut = own in self.origin.truncated
        self.origin.broken.add(own)
        try:
            again, data, head = await client.get(path)
        finally:
            self.origin.broken.discard(own)
        self.origin.truncated.discard(own)
        if again != 200:
            return
        if status < 0 and was_cut:
            # Its head was out already: what is passed on while it comes cannot be taken back.
            self.counts["broken off with a stale answer at hand"] += 1
            return
        self.problem(f"{path}: {status} though the cache had it: {head!r}")

    async def client(self, until):
        client = Client(self.port)
        await asyncio.sleep(self.random.random())
        while time.monotonic() < until:
            try:
                begun = time.monotonic()
                await self.one(client)
                self.asked += 1
                if self.rate:
                    await asyncio.sleep(max(0, begun + CLIENTS / self.rate - time.monotonic()))
            except OSError as error:
                self.problem(f"no connection: {error}")
                await asyncio.sleep(1)
        client.close()

    async def watch(self, until):
        while time.monotonic() < until:
            await asyncio.sleep(min(5, max(0.1, until - time.monotonic())))
            if self.proxy.poll() is not None:
                self.problem(f"tileproxy ended with {self.proxy.returncode}")
                return
            status = pathlib.Path(f"/proc/{self.proxy.pid}/status").read_text()
            self.memory.append(int(re.search(r"VmRSS:\s+(\d+)", status).group(1)))
            self.descriptors.append(len(os.listdir(f"/proc/{self.proxy.pid}/fd")))

    async def phase(self, seconds):
        until = time.monotonic() + seconds
        before = self.asked
        await asyncio.gather(self.watch(until), *(self.client(until) for _ in range(CLIENTS)))
        return (self.asked - before) / seconds

    async def run(self):
        server = await asyncio.start_server(self.origin.serve, "127.0.0.1", 0, backlog=1024)
        self.start(server.sockets[0].getsockname()[1])
        try:
            most = await self.phase(15)
            self.rate = self.options.rate or most / 2
            print(f"{most:.0f} requests/s at most here; going on with {self.rate:.0f}", flush=True)
            self.memory.clear()
            seconds = self.options.minutes * 60
            done = await self.phase(seconds)
            metrics = (await Client(self.port).get("/_tileproxy/metrics"))[1].decode()
        finally:
            self.proxy.terminate()
            code = self.proxy.wait(timeout=60)
        if code != 0:
            self.problem(f"tileproxy ended with {code}")
        server.close()
        self.report(done, metrics)

    def report(self, done, metrics):
        print(f"{self.asked} requests, {done:.0f}/s")
        for name, count in sorted(self.counts.items()):
            print(f"  {name}: {count}")
        print("origin: " + ", ".join(f"{name} {count}" for name, count in sorted(self.origin.counts.items())))
        evicted = re.search(r"^tileproxy_evicted_blobs_total (\S+)", metrics, re.M)
        print(f"evicted blobs: {evicted.group(1) if evicted else '?'}")
        if not evicted or float(evicted.group(1)) == 0:
            self.problem("nothing was evicted: the budget was too large to tell anything")
        fourth = max(1, len(self.memory) // 4)
        early = statistics.median(self.memory[fourth:2 * fourth] or self.memory)
        late = statistics.median(self.memory[-fourth:])
        print(f"memory: {early / 1024:.1f} MiB in the second quarter, {late / 1024:.1f} MiB in the last, "
              f"{max(self.memory) / 1024:.1f} at most; descriptors: {max(self.descriptors)} at most")
        if late > early * 1.1 + 2048:
            self.problem("memory grows")
        if max(self.descriptors) > 500:
            self.problem("descriptors pile up")
        verify = subprocess.run(
            [f"{self.options.bin}/tilegc", "verify", str(self.work / "cache")], capture_output=True, text=True)
        print(verify.stdout.strip() + verify.stderr.strip())
        if verify.returncode != 0:
            self.problem(f"verify says {verify.returncode}")
        log = (self.work / "proxy.log").read_text(errors="replace")
        loud = [line for line in log.splitlines() if re.match(r"\S+ (error|critical) ", line)]
        print(f"log: {len(log.splitlines())} lines, {len(loud)} of them errors")
        for line in loud[:5]:
            print("  " + line[:300])

    def clean(self):
        self.log.close()
        shutil.rmtree(self.work, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--work")
    parser.add_argument("--rate", type=float)
    parser.add_argument("--keep", action="store_true")
    soak = Soak(parser.parse_args())
    try:
        asyncio.run(soak.run())
    finally:
        if not soak.options.keep:
            soak.clean()
    if soak.counts["PROBLEM"]:
        sys.exit(f"soak: {soak.counts['PROBLEM']} problems")
    print("soak: all answers right, memory flat, verify clean")


main()
