#!/usr/bin/env python3
"""The real programs on a real ext4 that fills up, runs out of inodes, turns read-only, loses its power or its device, under load.

  check-disk.py [SECONDS] [SEED]      as root, with PATH leading to tilegc and tileproxy

The disk is an image of 64 MB behind a loop device. For a power cut it lies on a second ext4, which is shut down (EXT4_IOC_SHUTDOWN): what
the first has not flushed by then is lost or half there, as with the write cache of a drive, and reads and writes fail from then on. Every
body follows from its URL, so every answer is checked. Everything runs in a mount and process namespace of its own: no mount, device
or process is left behind, even if this is killed.
"""
import collections, fcntl, hashlib, http.client, http.server, os, random, re, shutil, signal, socket, struct, subprocess, sys, tempfile
import threading, time

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 120
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 1
PNG = bytes([0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A])
SHUTDOWN, WITHOUT_JOURNAL = 0x8004587D, struct.pack("I", 2)  # EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
GUARD = 60  # seconds after which a request or a command hangs
LATE = 45  # seconds after which a power cut takes nothing in relaxed mode: Linux writes back after 30, and looks and commits every 5
BOOT = "/proc/sys/kernel/random/boot_id"
ROUNDS = ["blocks", "cut relaxed", "read-only", "cut durable", "inodes", "detached", "shut down", "cut durable", "started read-only"]
DONE, MISSING, NONE, IO = 0, 1, 66, 74
wrong = []


def body(path):
    """The bytes at a path of the origin: a third of the tiles are the same one."""
    digest = hashlib.sha256(path.encode()).digest()
    if path.startswith("/t/") and digest[0] % 3 == 0:
        return PNG + b"sea" * 300
    most = 12_000 if path.startswith("/t/") else 400_000 if digest[0] % 8 == 0 else 40_000
    return PNG + path.encode() + hashlib.shake_256(digest).digest(300 + int.from_bytes(digest[1:5], "big") % most)


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except OSError:
            pass

    def do_GET(self):
        tag = '"%s"' % hashlib.sha256(self.path.encode()).hexdigest()[:16]
        same = self.headers.get("If-None-Match") == tag
        data = b"" if same else body(self.path)
        self.send_response(304 if same else 200)
        self.send_header("ETag", tag)
        self.send_header("Cache-Control", "max-age=3")
        if not same:
            self.send_header("Content-Type", "image/png")
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def system(*command):
    done = subprocess.run(command, capture_output=True, timeout=GUARD)
    if done.returncode != 0:
        raise SystemError(f"{' '.join(command)}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode()


class Disk:
    """An ext4 in a file, mounted at `disk`. With a write cache its file lies on another one, mounted at `drive`."""

    def __init__(self, inodes=None, has_cache=False):
        self.has_cache, self.image = has_cache, "disk.img"
        if has_cache:
            self.make("drive.img", 90)
            self.attach("drive.img", "drive")
            self.image = "drive/disk.img"
        self.make(self.image, 64, *(["-N", str(inodes)] if inodes else []))
        self.mount()
        if has_cache:
            system("sync", "-f", "drive")

    def make(self, path, megabytes, *options):
        with open(path, "wb") as file:
            for _ in range(megabytes):
                file.write(bytes(1 << 20))
        system("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", *options, path)

    def attach(self, image, folder, options="rw"):
        os.makedirs(folder, exist_ok=True)
        system("mount", "-o", f"loop,errors=remount-ro,{options}", image, folder)
        return system("findmnt", "-n", "-o", "SOURCE", "--mountpoint", folder).strip()

    def mount(self, options="rw"):
        self.device = self.attach(self.image, "disk", options)

    def cut(self):
        """Cuts the power of the drive, or the file system alone off from its drive where that has no write cache."""
        folder = os.open("drive" if self.has_cache else "disk", os.O_RDONLY)
        fcntl.ioctl(folder, SHUTDOWN, WITHOUT_JOURNAL)
        os.close(folder)
        if self.has_cache:
            # What is in memory already can still be read: a blob has to be read from the drive, which fails.
            for place, _, names in os.walk("disk/cache/objects"):
                for name in names:
                    with open(os.path.join(place, name), "rb") as file:
                        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def abort(self):
        """As after an error of the disk: the journal is given up, and the file system is read-only from then on."""
        with open(f"/sys/fs/ext4/{os.path.basename(self.device)}/trigger_fs_error", "w") as file:
            file.write("check-disk")

    def unmount(self):
        system("umount", "disk")
        self.wait_for_device()

    def wait_for_device(self):
        """Waits until the device is given up, which may be after the last file was closed."""
        until = time.monotonic() + GUARD
        while os.path.abspath(self.image) in system("losetup", "-n", "-O", "BACK-FILE"):
            if time.monotonic() > until:
                raise SystemError(f"{self.device} is not given up")
            time.sleep(0.05)

    def restart(self, checks=False):
        """Attaches the disk anew, which replays its journal."""
        self.unmount()
        if self.has_cache:
            system("umount", "drive")
            self.attach("drive.img", "drive")
        if checks:
            done = subprocess.run(["e2fsck", "-fy", self.image], capture_output=True, timeout=GUARD)
            if done.returncode & ~3:
                wrong.append(f"e2fsck ended with {done.returncode}: {done.stdout[-300:]}")
        self.mount()

    def remove(self):
        self.unmount()
        if self.has_cache:
            system("umount", "drive")


def fill(blocks):
    """Takes what the disk has left, blocks or inodes."""
    os.makedirs("disk/foreign", exist_ok=True)
    if not blocks:
        try:
            for number in range(10_000):
                os.close(os.open(f"disk/foreign/{len(os.listdir('disk/foreign'))}-{number}", os.O_CREAT | os.O_WRONLY))
        except OSError:
            return
    for size in [1 << 20, 4096, 1]:
        try:
            with open("disk/foreign/file", "ab", buffering=0) as file:
                while True:
                    file.write(bytes(size))
        except OSError:
            pass


class Load:
    """A proxy, clients that check each answer, and commands one after another."""

    def __init__(self, name, randomness, origin, is_durable, commands, folder, capacity):
        self.name, self.is_durable, self.commands, self.folder = name, is_durable, commands, folder
        self.source = f"http://127.0.0.1:{origin}"
        self.randomness = random.Random(randomness.random())
        self.state = "sound"  # or full, dead, detached, damaged
        self.statuses = {DONE}
        self.stored = {}
        self.proxy = None
        self.counts = collections.Counter()
        self.threads = []
        self.commands_rest = threading.Event()
        self.is_over = threading.Event()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        with open("proxy.yaml", "w") as file:
            file.write(f"cache: disk/cache\nlisten: 127.0.0.1:{self.port}\nmemory: 1MiB\n"
                       f"durability: {'durable' if is_durable else 'relaxed'}\n{capacity}"
                       f"sources:\n  t:\n    template: {self.source}/t/{{z}}/{{x}}/{{y}}.png\n"
                       f"upstreams:\n  - generic:/g={self.source}/g\n")

    def fail(self, text):
        wrong.append(f"{self.name}, {self.state}: {text}")

    def said(self):
        with open("proxy.log", "rb") as log:
            return log.read()[-600:].decode(errors="replace")

    def start(self, clients=6, may_refuse=False):
        """Whether it runs; on a broken disk it may refuse to, and has to say why."""
        with open("proxy.log", "wb") as log:
            self.proxy = subprocess.Popen(["tileproxy", "serve", "--config", "proxy.yaml"], stdout=log, stderr=log)
        until = time.monotonic() + GUARD
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
                break
            except OSError:
                if may_refuse and self.proxy.poll() == IO and re.search("Input/output error|[Rr]ead-only", self.said()):
                    self.counts[self.state, "proxy refuses to start"] += 1
                    return False
                if self.proxy.poll() is not None or time.monotonic() > until:
                    raise SystemError(f"the proxy does not start ({self.proxy.poll()}): {self.said()}")
                time.sleep(0.05)
        self.is_over.clear()
        self.threads = [threading.Thread(target=self.client, args=[random.Random(self.randomness.random())]) for _ in range(clients)]
        if self.commands:
            self.threads.append(threading.Thread(target=self.command))
        for thread in self.threads:
            thread.start()
        return True

    def stop(self):
        """Ends it all, the proxy in order."""
        self.is_over.set()
        for thread in self.threads:
            thread.join()
        if self.proxy.poll() is not None:
            self.fail(f"the proxy ended by itself with {self.proxy.returncode}: {self.said()}")
            return
        self.proxy.terminate()
        try:
            status = self.proxy.wait(GUARD + 60)
            self.counts[self.state, f"proxy ended with {status}"] += 1
            if status not in self.statuses:
                self.fail(f"the proxy ended with {status}: {self.said()}")
        except subprocess.TimeoutExpired:
            self.fail("the proxy hangs when it is to end")
            self.proxy.kill()
            self.proxy.wait()

    def ask(self, connection, path):
        """Whether the answer says that it is stored."""
        before = self.state
        connection.request("GET", path)
        answer = connection.getresponse()
        data = answer.read()
        kind = (answer.headers.get("Cache-Status") or "").split(";")[1:2]
        self.counts[before, answer.status, *kind] += 1
        if answer.status == 200 and data != body(path.replace("/tiles", "")):
            self.fail(f"{path} differs: {len(data)} bytes, {answer.headers.get('Cache-Status')}")
        elif answer.status != 200 and not (path[1] == "g" and self.state == "dead"):
            self.fail(f"{path} is answered by {answer.status}: {data[:200]} {self.said()}")
        is_stored = path[1] == "t" and "; stored" in (answer.headers.get("Cache-Status") or "")
        if is_stored and self.is_durable and before == "dead":
            self.fail(f"{path} is said to be stored, on a disk that stores nothing")
        return is_stored

    def client(self, randomness):
        connection = None
        while not self.is_over.is_set():
            number = int(randomness.paretovariate(0.3)) % 20_000
            path = f"/t/8/{number // 100}/{number % 100}.png" if randomness.random() < 0.9 else f"/g/{number % 2000}.png"
            if self.folder == "more" and randomness.random() < 0.2:
                # A relaxed command may just have written the same bytes.
                path = f"/t/9/{randomness.randrange(512)}/0.png"
            begun, before = time.monotonic(), self.state
            try:
                connection = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=GUARD)
                if self.ask(connection, ("/tiles" if path[1] == "t" else "") + path):
                    self.stored.setdefault(path[3:], time.monotonic())
            except (OSError, http.client.HTTPException) as error:
                connection = None
                self.counts[before, type(error).__name__] += 1
                if time.monotonic() - begun > GUARD - 1:
                    self.fail(f"{path} has no answer after {GUARD} s")
                elif not (path[1] == "g" and self.state == "dead"):
                    # A large body that cannot be read to its end is broken off: its head is out.
                    self.fail(f"{path}: {error!r} {self.said()}")
                time.sleep(0.2)
            time.sleep(0.005)

    def run(self, *command, allowed=None):
        begun = self.state
        try:
            done = subprocess.run(["tilegc", *command], capture_output=True, timeout=GUARD)
        except subprocess.TimeoutExpired:
            self.fail(f"tilegc {' '.join(command)} hangs")
            return "hangs", "", ""
        said, errors = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        self.counts[begun, "tilegc " + command[0], done.returncode] += 1
        if allowed is None:
            allowed = {"sound": {DONE}, "full": {DONE, IO, MISSING}, "dead": {DONE, IO}, "detached": {NONE}, "damaged": {DONE, MISSING, IO}}
            allowed = allowed[begun] | allowed[self.state]
            if "dead" in [begun, self.state] and command[0] in ["seed", "verify"]:
                allowed.add(MISSING)
            elif command[0] in ["verify", "gc", "rm", "ls", "stats"] and {begun, self.state} <= {"sound", "full"}:
                allowed = {DONE}
        if done.returncode not in allowed:
            self.fail(f"tilegc {' '.join(command)} ended with {done.returncode}: {said[-300:]} {errors[-300:]}")
        elif done.returncode == IO and begun == self.state == "full" and "is full" not in errors:
            self.fail(f"tilegc {' '.join(command)} does not say that the disk is full: {errors[-300:]}")
        elif done.returncode == IO and not re.search("Input/output error|is full|[Rr]ead-only|reading alone", errors):
            self.fail(f"tilegc {' '.join(command)} does not say what is wrong: {errors[-300:]}")
        return done.returncode, said, errors

    def seed(self, source, zoom="0-3"):
        return ["seed", "disk/cache", "--source", source, "--url", self.source + "/t/{z}/{x}/{y}.png",
                "--bbox", "-180,-85,180,85", "--zoom", zoom]

    def command(self):
        every = {"import": ["import", "disk/cache", self.folder, "--source", "w"], "seed": self.seed("s"),
                 "verify": ["verify", "disk/cache"], "gc": ["gc", "disk/cache", "--max-bytes", "10MB"],
                 "expire": ["expire", "disk/cache", "--zoom", "0-8"],
                 "rm": ["rm", "disk/cache", "--source", "s"], "compact": ["compact", "disk/cache"], "stats": ["stats", "disk/cache"],
                 "ls": ["ls", "disk/cache", "--source", "w"]}
        while not self.is_over.is_set():
            if self.commands_rest.is_set():
                time.sleep(0.05)
                continue
            name = self.randomness.choice(self.commands if self.state != "detached" else ["verify", "stats", "ls"])
            self.run(*every[name])
            time.sleep(0.05)

    def tiles(self, source):
        _, said, _ = self.run("ls", "disk/cache", "--source", source, allowed={DONE})
        return {match[1] + ".png" for match in re.finditer(rf" {source}/(\d+/\d+/\d+)$", said, re.MULTILINE)}

    def check(self, has_to_be_sound, expected):
        """What is there after a fault has to be right; what is missing has to be named; what was done has to be there."""
        status, said, errors = self.run("verify", "disk/cache", allowed={DONE} if has_to_be_sound else {DONE, MISSING})
        if status == MISSING:
            self.counts[self.state, "damage named"] += 1
            if not re.search(r"^(damaged|missing|manifest|counts):", said + errors, re.MULTILINE):
                self.fail(f"verify ended with 1 and names nothing: {said[-300:]} {errors[-300:]}")
            # First as it is: nothing damaged may be served.
            self.round(1, "damaged")
            self.run("verify", "disk/cache", "--repair", allowed={DONE})
        for source, tiles in expected.items():
            there = self.tiles(source)
            missing = set(tiles) - there
            if missing:
                self.fail(f"{len(missing)} of {len(tiles)} tiles of {source} are lost, {min(missing)} among them")
            shutil.rmtree("out", ignore_errors=True)
            if not there:
                continue
            self.run("export", "disk/cache", "out", "--source", source, allowed={DONE})
            for folder, _, names in os.walk("out"):
                for name in names:
                    path = os.path.join(folder, name)
                    with open(path, "rb") as file:
                        if file.read() != body("/t/" + os.path.relpath(path, "out")):
                            self.fail(f"{path} differs")
        self.counts[self.state, "tiles that had to be there"] += sum(map(len, expected.values()))

    def round(self, seconds, state="sound"):
        """A new proxy for a while."""
        (self.state, self.statuses) = (state, {DONE})
        self.start()
        time.sleep(seconds)
        self.stop()
        self.state = "sound"


def imported():
    """A folder to import, of tiles that the origin has too."""
    paths = [f"8/{x}/{y}.png" for x in range(8) for y in range(50)]
    for path in paths:
        os.makedirs("tiles/" + os.path.dirname(path), exist_ok=True)
        with open("tiles/" + path, "wb") as file:
            file.write(body("/t/" + path))
    return paths


def one_round(name, randomness, origin, paths, pause, late=False):
    has_cache = name.startswith("cut")
    is_durable = name == "cut durable" or not has_cache and randomness.random() < 0.5
    loses = has_cache or name in ["shut down", "read-only", "detached"]
    # Without relaxed writers nothing at all may be damaged.
    is_pure = loses and is_durable and randomness.random() < 0.5
    commands = ["verify", "compact", "stats", "ls"] + ([] if is_pure else ["import", "seed"])
    if not loses:
        # What a durable proxy has stored no relaxed command may take away, where it is asked for afterwards.
        commands += ["gc", "expire", "rm"]
    disk = Disk(inodes=1200 if name == "inodes" else None, has_cache=has_cache)
    load = Load(f"{name}, {'durable' if is_durable else 'relaxed'}", randomness, origin, is_durable, commands,
                "more" if loses else "tiles", "" if loses else "capacity: 30MiB\n")
    load.run("import", "disk/cache", "tiles", "--source", "first", allowed={DONE})
    load.run(*load.seed("seeded"), allowed={DONE})
    done = {"first": paths, "seeded": load.tiles("seeded")}
    if len(done["seeded"]) != sum(4 ** zoom for zoom in range(4)) or load.tiles("first") != set(paths):
        load.fail(f"seed and import said that they were done, and {len(done['seeded'])} and {len(load.tiles('first'))} tiles are there")
    try:
        if has_cache:
            # The commands have said that they are done: no later cut of the power may take that.
            disk.cut()
            disk.restart()
            load.check(True, done)
        if name == "started read-only":
            system("mount", "-o", "remount,ro", "disk")
            load.state = "dead"
        load.start()
        begun = time.monotonic()
        time.sleep(pause * (0.5 + randomness.random()))
        if name in ["blocks", "inodes"]:
            full(load, name == "blocks", pause)
        elif name == "started read-only":
            read_only(load, pause)
        elif name == "detached":
            detached(load, disk, done, pause)
        else:
            if late:
                time.sleep(max(0, begun + LATE + 3 - time.monotonic()))
            times = 3 if is_durable and name != "read-only" else 1
            cut(load, disk, name, done, is_pure, late, times, randomness, pause)
    finally:
        load.is_over.set()
        if load.proxy and load.proxy.poll() is None:
            load.proxy.kill()
            load.proxy.wait()
        while subprocess.run(["umount", BOOT], capture_output=True).returncode == 0:
            pass
    disk.remove()
    return load.counts


def read_only(load, pause):
    """A proxy that was started on a disk that is mounted read-only serves what is there."""
    load.stop()
    if not any(key[:3] == ("dead", 200, " hit") for key in load.counts):
        load.fail("nothing of the cache was served")
    system("mount", "-o", "remount,rw", "disk")
    load.round(pause / 2)
    load.check(True, {"t": []})


def detached(load, disk, done, pause):
    """A proxy goes on in a file system that has no place and whose device is given up, and nothing is lost when it ends."""
    load.state = "detached"
    system("umount", "-l", "disk")
    system("losetup", "-d", disk.device)
    time.sleep(pause)
    load.stop()
    disk.wait_for_device()
    disk.mount()
    load.state = "sound"
    load.check(True, done | {"t": list(load.stored)})


def cut(load, disk, name, done, is_pure, late, times, randomness, pause):
    stored = {}
    for number in range(times):
        if number > 0:
            load.start()
            time.sleep(pause * randomness.random())
        stored |= load.stored
        now = time.monotonic()
        load.state, load.statuses = "dead", {DONE, IO}
        disk.abort() if name == "read-only" else disk.cut()
        time.sleep(pause / 2)
        load.stop()
        if load.start(may_refuse=name != "read-only"):
            time.sleep(pause / 6)
            load.stop()
        disk.restart(checks=name == "read-only")
        if randomness.random() < 0.5:
            # As if the machine had been started anew.
            with open("boot", "w") as file:
                file.write("%08x-0000-4000-8000-000000000000\n" % randomness.getrandbits(32))
            system("mount", "--bind", "boot", BOOT)
        load.state, load.statuses = "sound", {DONE}
        if load.is_durable:
            load.check(is_pure, done | {"t": list(stored)})
        elif late:
            load.check(False, done | {"t": [tile for tile, at in stored.items() if at < now - LATE]})
        else:
            load.check(False, done | {"t": []})
    load.round(pause / 2)
    load.check(True, {"t": []})


def full(load, blocks, pause):
    """A foreign file takes all that the disk has; when it is gone, all is well without a restart."""
    load.commands_rest.set()
    time.sleep(0.5)
    load.state = "full"
    fill(blocks)
    _, _, errors = load.run(*load.seed("new", "0-5"), allowed={MISSING, IO})
    if "is full" not in errors:
        load.fail(f"seed does not say that the disk is full: {errors[-300:]}")
    _, _, errors = load.run("import", "disk/cache", "more", "--source", "more", allowed={IO})
    if "is full" not in errors:
        load.fail(f"import does not say that the disk is full: {errors[-300:]}")
    load.run("verify", "disk/cache", allowed={DONE})
    for size in ["5MB", "3MB"]:
        load.run("gc", "disk/cache", "--max-bytes", size, allowed={DONE})
        fill(blocks)
    load.commands_rest.clear()
    until = time.monotonic() + pause
    while time.monotonic() < until:
        fill(blocks)
        time.sleep(0.3)
    load.commands_rest.set()
    time.sleep(0.5)
    shutil.rmtree("disk/foreign")
    until = time.monotonic() + 10
    connection = http.client.HTTPConnection("127.0.0.1", load.port, timeout=GUARD)
    number = 0
    while not load.ask(connection, f"/tiles/t/7/{number}/0.png"):
        number += 1
        if time.monotonic() > until:
            load.fail("the proxy stores nothing 10 s after the disk has room again")
            break
        time.sleep(0.1)
    time.sleep(0.5)
    load.state = "sound"
    load.run("import", "disk/cache", "more", "--source", "more", allowed={DONE})
    load.commands_rest.clear()
    time.sleep(pause / 2)
    load.stop()
    load.check(True, {"t": [], "w": [], "more": []})


def inside(folder):
    os.chdir(folder)
    randomness = random.Random(SEED)
    origin = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    threading.Thread(target=origin.serve_forever, daemon=True).start()
    paths = imported()
    for number in range(512):
        os.makedirs(f"more/9/{number}", exist_ok=True)
        with open(f"more/9/{number}/0.png", "wb") as file:
            file.write(body(f"/t/9/{number}/0.png"))
    begun, number = time.monotonic(), 0
    is_late = SECONDS >= 100
    while time.monotonic() < begun + SECONDS and len(wrong) < 50 or number == 0:
        name = ROUNDS[number % len(ROUNDS)]
        late = is_late and name == "cut relaxed" and number < len(ROUNDS)
        try:
            counts = one_round(name, randomness, origin.server_address[1], paths, 3, late)
        except Exception as error:
            wrong.append(f"{name}: the round was broken off: {error!r}")
            for folder in ["disk", "drive"]:
                subprocess.run(["umount", "-l", folder], capture_output=True)
            counts = {}
        number += 1
        print(f"{name}{' after a while' if late else ''}", flush=True)
        for state in sorted({key[0] for key in counts}):
            print(f"  {state}:", ", ".join(f"{' '.join(str(word).strip() for word in key[1:])} {count}"
                                           for key, count in sorted(counts.items(), key=str) if key[0] == state), flush=True)
    for one in wrong[:20]:
        print("check-disk:", one, file=sys.stderr)
    print(f"check-disk: {number} rounds: {len(wrong)} wrong")
    sys.stdout.flush()
    os._exit(1 if wrong else 0)


def skip(why):
    print(f"check-disk: skipped: {why}")
    sys.exit(0)


def main():
    if len(sys.argv) > 3:
        return inside(sys.argv[3])
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        skip("it mounts file systems, and needs Linux and root for that")
    for tool in ["mkfs.ext4", "e2fsck", "losetup", "findmnt", "unshare", "setpriv"]:
        if not shutil.which(tool):
            skip(f"there is no {tool} (apt install e2fsprogs util-linux)")
    for program in ["tilegc", "tileproxy"]:
        if not shutil.which(program):
            sys.exit(f"check-disk: no {program} on the PATH")
    # Ends the namespace, and with it mounts, loop devices and processes, as soon as this process is gone.
    space = ["setpriv", "--pdeathsig", "KILL",
             "unshare", "--mount", "--propagation", "private", "--pid", "--mount-proc", "--fork", "--kill-child"]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="check-disk-") as folder:
        image = os.path.join(folder, "disk.img")
        with open(image, "wb") as file:
            file.truncate(8 << 20)
        system("mkfs.ext4", "-q", "-F", image)
        probe = subprocess.run(space + ["mount", "-o", "loop", image, folder], capture_output=True)
        if probe.returncode != 0:
            skip(f"loop devices cannot be mounted here: {probe.stderr.decode(errors='replace').strip()}")
        child = subprocess.Popen(space + [sys.executable, os.path.abspath(__file__), str(SECONDS), str(SEED), folder])
        try:
            status = child.wait()
        finally:
            child.kill()
            child.wait()
    sys.exit(status)


main()
