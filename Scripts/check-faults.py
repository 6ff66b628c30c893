#!/usr/bin/env python3
"""The real programs while the system refuses what they ask of files: reads and writes that fail or come short, no space, files that
cannot be opened, synced, renamed or removed (libfiu, Debian's fiu-utils).

  check-faults.py [SECONDS] [SEED]      with PATH leading to tilegc and tileproxy

After each command cache and set are verified without faults: they have to be sound. What says that it is done has to be done, to the
tile. A proxy has to start within some attempts, to go on, to answer, and may serve nothing wrong.
"""
import collections, functools, http.client, http.server, json, os, random, re, shutil, socket, subprocess, sys, tempfile, threading, time

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 120
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 1
SAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "Sample", "world")
POINTS = ["posix/io/rw/*", "posix/io/sync/*", "posix/io/oc/*", "posix/io/dir/*", "posix/io/*"]
# Of files alone: NIO ends the process where a socket is said to be none, which no system does.
PROXY_POINTS = ["posix/io/rw/pread", "posix/io/rw/pwrite", "posix/io/oc/open", "posix/io/sync/*", "posix/io/dir/*"]
CHANCES = [0.0005, 0.002, 0.01, 0.05]
TILES = sorted(os.path.relpath(os.path.join(folder, name), SAMPLE)
               for folder, _, names in os.walk(SAMPLE) for name in names if name.endswith(".png"))
wrong = []


def faulty(command, point, chance):
    return ["fiu-run", "-x", "-f", "", "-c", f"enable_random name={point},probability={chance}"] + command


def run(command):
    try:
        done = subprocess.run(command, capture_output=True, timeout=300)
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return "hangs", "", ""


def same(path, tile):
    with open(path, "rb") as one, open(os.path.join(SAMPLE, tile), "rb") as other:
        return one.read() == other.read()


def listed(folder):
    """The tiles that a cache has, as files of a folder."""
    status, said, errors = run(["tilegc", "ls", folder, "--source", "w"])
    if status != 0:
        wrong.append(f"ls of {folder} without faults ended with {status}: {errors[-300:]}")
    return {match[1] + ".png" for match in re.finditer(r" w/(\d+/\d+/\d+)$", said, re.MULTILINE)}


def check_done(name, place):
    """What a command has to have done that says so."""
    if name == "import" and listed("cache") != set(TILES):
        wrong.append(f"{place}: it said that it was done and imported {len(listed('cache'))} tiles")
    if name == "export":
        missing = [tile for tile in listed("cache") if not os.path.exists(os.path.join("out", tile))]
        if missing:
            wrong.append(f"{place}: it said that it was done and {len(missing)} tiles are missing, {missing[0]} among them")
    if name == "publish" or name == "pull":
        here = "cache" if name == "publish" else "pulled"
        status, said, errors = run(["tilegc", "diff", here, "set", "--source", "w", "--json"])
        if status != 0 or any(json.loads(said)[word] for word in ["added", "changed", "removed"]):
            wrong.append(f"{place}: it said that it was done, and {here} and set differ ({status}): {said[-300:]} {errors[-300:]}")


def commands(randomness, until):
    """Commands on a cache, one after another, each with faults of one kind."""
    outcomes = collections.Counter()
    rounds = 0
    while time.monotonic() < until:
        rounds += 1
        for folder in ["cache", "set", "pulled", "out"]:
            shutil.rmtree(folder, ignore_errors=True)
        if randomness.random() < 0.5:
            run(["tilegc", "import", "cache", SAMPLE, "--source", "w"])
            if randomness.random() < 0.5:
                run(["tilegc", "publish", "cache", "set", "--source", "w"])
        for _ in range(6):
            name, command = randomness.choice([
                ("import", ["import", "cache", SAMPLE, "--source", "w"]),
                ("gc", ["gc", "cache", "--max-bytes", str(randomness.choice([100_000, 1_000_000, 3_000_000]))]),
                ("compact", ["compact", "cache"]), ("expire", ["expire", "cache", "--source", "w", "--zoom", "0-4"]),
                ("rm", ["rm", "cache", "--source", "w", "--zoom", "5"]), ("verify", ["verify", "cache"]),
                ("repair", ["verify", "cache", "--repair"]), ("publish", ["publish", "cache", "set", "--source", "w"]),
                ("pull", ["pull", "set", "pulled", "--source", "w"]), ("stats", ["stats", "cache"]),
                ("export", ["export", "cache", "out", "--source", "w"]), ("ls", ["ls", "cache", "--zoom", "0-2"])])
            point, chance = randomness.choice(POINTS), randomness.choice(CHANCES)
            status, said, errors = run(faulty(["tilegc"] + command, point, chance))
            outcomes[name, status] += 1
            place = f"round {rounds}: {name} with {point} at {chance}"
            if status == "hangs" or status < 0 or status >= 128:
                wrong.append(f"{place}: ended with {status}: {errors[-400:]}")
            for folder in ["cache", "pulled"]:
                # Without its file a folder is no cache yet: making it was given up, and whoever comes next makes it.
                if os.path.exists(os.path.join(folder, "tilecache.json")):
                    found, report, why = run(["tilegc", "verify", folder])
                    if found != 0:
                        wrong.append(f"{place}: {folder} is not sound: {report[-300:]} {why[-300:]}")
                        run(["tilegc", "verify", folder, "--repair"])
            if os.path.exists(os.path.join("set", "set.json")):
                found, report, why = run(["tilegc", "verify", "set"])
                if found != 0:
                    wrong.append(f"{place}: the set is not sound: {report[-300:]} {why[-300:]}")
            if status == 0:
                check_done(name, place)
            if os.path.isdir("out"):
                for tile in TILES:
                    path = os.path.join("out", tile)
                    if os.path.exists(path) and not same(path, tile):
                        wrong.append(f"{place}: {tile} differs")
    return rounds, outcomes


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except OSError:
            pass


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return True
    except OSError:
        return False


def proxy(randomness, point, chance, seconds):
    """A proxy before a server of files, with faults; what it serves has to be right, and it has to go on."""
    shutil.rmtree("proxied", ignore_errors=True)
    origin = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SAMPLE))
    threading.Thread(target=origin.serve_forever, daemon=True).start()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    source = "w=http://127.0.0.1:%d/{z}/{x}/{y}.png" % origin.server_address[1]
    run(["tilegc", "import", "proxied", os.path.join(SAMPLE, "0"), "--source", "other"])
    serve = ["tileproxy", "serve", "--cache", "proxied", "--source", source, "--listen", f"127.0.0.1:{port}"]
    counts = collections.Counter()
    program = None
    # Where it cannot read what it needs to start, it says so and ends.
    while program is None and counts["start"] < 100:
        counts["start"] += 1
        with open("proxy.log", "wb") as log:
            program = subprocess.Popen(faulty(serve, point, chance), stdout=log, stderr=log)
        while program.poll() is None and not answers(port):
            time.sleep(0.05)
        if program.poll() is not None:
            with open("proxy.log", "rb") as log:
                said = log.read().decode(errors="replace")
            if not 0 < program.returncode < 128 or "error" not in said and "tileproxy:" not in said:
                wrong.append(f"proxy with {point} at {chance} ended with {program.returncode}: {said[-300:]}")
            program = None
    if program is None:
        wrong.append(f"proxy with {point} at {chance} did not start in {counts['start']} attempts")
        origin.shutdown()
        return counts
    end = time.monotonic() + seconds
    while time.monotonic() < end and program.poll() is None:
        tile = randomness.choice(TILES)
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/tiles/w/" + tile)
            answer = connection.getresponse()
            body = answer.read()
            counts[answer.status] += 1
            with open(os.path.join(SAMPLE, tile), "rb") as file:
                if answer.status == 200 and body != file.read():
                    wrong.append(f"proxy with {point} at {chance}: {tile} differs")
        except (OSError, http.client.HTTPException) as error:
            counts[type(error).__name__] += 1
            time.sleep(0.05)
    if counts[200] == 0:
        wrong.append(f"proxy with {point} at {chance} served no tile: {dict(counts)}")
    if program.poll() is None:
        program.terminate()
        try:
            program.wait(60)
        except subprocess.TimeoutExpired:
            wrong.append(f"proxy with {point} at {chance} hangs when it is to end")
            program.kill()
    else:
        with open("proxy.log", "rb") as log:
            wrong.append(f"proxy with {point} at {chance} ended by itself with {program.returncode}: {log.read()[-300:]}")
    found, report, why = run(["tilegc", "verify", "proxied"])
    if found != 0 and os.path.exists(os.path.join("proxied", "tilecache.json")):
        wrong.append(f"proxy with {point} at {chance}: the cache is not sound: {report[-300:]} {why[-300:]}")
    origin.shutdown()
    return counts


def main():
    if not shutil.which("fiu-run"):
        sys.exit("check-faults: no fiu-run on the PATH (apt install fiu-utils)")
    randomness = random.Random(SEED)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        rounds, outcomes = commands(randomness, time.monotonic() + SECONDS / 2)
        for (name, status), count in sorted(outcomes.items(), key=str):
            print(f"  {name:8} {status!s:>6} {count:5}")
        for point in PROXY_POINTS:
            for chance in [0.002, 0.05]:
                counts = proxy(randomness, point, chance, SECONDS / 2 / len(PROXY_POINTS) / 2)
                print(f"  proxy with {point} at {chance}: {dict(counts)}")
        os.chdir("/")
    for one in wrong:
        print("check-faults:", one, file=sys.stderr)
    print(f"check-faults: {rounds} rounds of 6 commands and {2 * len(PROXY_POINTS)} proxies: {len(wrong)} wrong")
    sys.exit(1 if wrong else 0)


main()
