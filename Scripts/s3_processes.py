"""What the servers of Scripts/s3-server.py share: their processes, of which the one in front is started again when it is killed."""
import json
import pathlib
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

BUCKET, FULL, FULL_COUNT = "tiles", "full", 4


class Unavailable(Exception):
    """The server cannot be had on this machine."""


def fail(words):
    sys.exit(f"s3-server: {words}")


def free_ports(count):
    """Ports that nobody has. They are held together, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


class Processes:
    """The processes of one server, by name, and their folder."""

    def __init__(self, folder, front, port):
        """front: the name of the process that clients talk to, at the port."""
        self.folder, self.front = pathlib.Path(folder), front
        self.url = f"http://127.0.0.1:{port}"
        self.processes = {}
        self.ends = threading.Event()
        # Held while the server in front is started again, so that none is left over at the end.
        self.restart = threading.Lock()
        self.pid_file = self.folder / "front.pid"

    def launch(self, name, command):
        with open(self.folder / f"{name}.out", "ab") as log:
            self.processes[name] = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)

    def wait_for(self, name, url):
        """Waits until a process answers, whatever it says."""
        end = time.monotonic() + 300
        while time.monotonic() < end and self.processes[name].poll() is None and not self.ends.is_set():
            try:
                with urllib.request.urlopen(url, timeout=10):
                    return
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.05)
        if not self.ends.is_set():
            logs = "".join(path.read_text(errors="replace")[-4000:] for path in self.folder.glob(f"{name}*.*"))
            fail(f"the {name} server does not answer:\n{logs}")

    def start_front(self):
        self.launch(self.front, self.front_command())
        self.wait_for(self.front, self.front_probe)
        part = self.pid_file.with_suffix(".part")
        part.write_text(str(self.processes[self.front].pid))
        part.rename(self.pid_file)

    def keep_front(self):
        """Starts the server in front again whenever it is killed, until the end."""
        def keep():
            while not self.ends.is_set():
                self.processes[self.front].wait()
                with self.restart:
                    if not self.ends.is_set():
                        self.start_front()
        threading.Thread(target=keep, daemon=True).start()

    def stop(self):
        self.ends.set()
        with self.restart:
            for process in self.processes.values():
                if process.poll() is None:
                    process.kill()
        for process in self.processes.values():
            process.wait()

    def environment_of(self, kind, access, secret):
        return {
            "TILE_TEST_S3": self.url, "TILE_TEST_S3_BUCKET": BUCKET, "TILE_TEST_S3_FULL": FULL,
            "TILE_TEST_S3_FULL_COUNT": str(FULL_COUNT), "TILE_TEST_S3_ACCESS_KEY": access,
            "TILE_TEST_S3_SECRET_KEY": secret, "TILE_TEST_S3_SERVER": kind, "TILE_TEST_S3_PID": str(self.pid_file),
        }


class Memory:
    """In memcached's place, which older releases of Swift want, and without which each request asks the other servers for its
    account and its bucket anew. How many objects are in the bucket that is full is counted each time."""

    def __init__(self):
        self.known = {}

    def get(self, key, **_):
        ends, text = self.known.get(key, (0, "null"))
        return json.loads(text) if time.monotonic() < ends and not key.endswith("/" + FULL) else None

    def set(self, key, value, **options):
        lifetime = options.get("time") or float("inf")
        # As text, as memcached has it.
        self.known[key] = (time.monotonic() + lifetime, json.dumps(value))

    def delete(self, key, **_):
        self.known.pop(key, None)

    def incr(self, *_, **__):
        return None

    decr = incr


def memory(_, **__):
    """The filter of a pipeline of Swift's that gives requests such a cache."""
    known = Memory()

    def around(application):
        def answer(environment, start):
            environment["swift.cache"] = known
            return application(environment, start)
        return answer
    return around


def run(command, environment):
    """Runs the command; told to end meanwhile, this tells the command, and waits for it for a minute."""
    process = subprocess.Popen(command, env=environment)
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
        raise
