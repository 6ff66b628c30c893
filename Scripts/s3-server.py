#!/usr/bin/env python3
"""Runs a command beside an S3 server: OpenStack Swift with its s3api, four processes on the loopback, one replica.

    Scripts/s3-server.py COMMAND [ARGUMENT ...]    runs the command, stops the server, ends with the command's status
    Scripts/s3-server.py                           prints where the server listens, and serves until Ctrl-C

Swift comes from PyPI into a virtual environment of its own (.build-s3/venv, or S3_VENV). Its data is in a temporary folder
that is removed at the end; the folder's file system must have extended attributes. No root is needed.

The command finds in its environment
    TILE_TEST_S3           the server's URL
    TILE_TEST_S3_BUCKET    a bucket that exists and is empty
    TILE_TEST_S3_ACCESS_KEY, TILE_TEST_S3_SECRET_KEY
    TILE_TEST_S3_PID       a file with the process id of the server in front. Killed, it is started again at the same
                           port, and the file then has the new id.
    TILE_TEST_PYTHON       a Python that has botocore
"""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = pathlib.Path(os.environ.get("S3_VENV", ROOT / ".build-s3/venv"))
PACKAGES = ["swift>=2.35,<3", "botocore>=1.34,<2"]
ACCESS, SECRET, BUCKET = "test:tester", "testing", "tiles"
# What Swift reads from /etc otherwise.
SHARED = "[swift-hash]\nswift_hash_path_suffix = tests\n[storage-policy:0]\nname = one\ndefault = yes\n"
PROXY = """
[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck memory listing_formats s3api tempauth bulk proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
allow_account_management = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:healthcheck]
use = egg:swift#healthcheck
[filter:memory]
paste.filter_factory = __main__:memory
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
allow_multipart_uploads = false
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:bulk]
use = egg:swift#bulk
"""


def fail(words):
    sys.exit(f"s3-server: {words}")


def venv():
    """The Python of a virtual environment with Swift in it."""
    python = VENV / "bin/python"
    probe = "import swift.proxy.server, botocore.session"
    if not python.exists() or subprocess.run([python, "-c", probe], capture_output=True).returncode:
        print(f"s3-server: installing Swift from PyPI into {VENV}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        if subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES]).returncode:
            fail("Swift could not be installed: it needs PyPI, or S3_VENV with an environment that has it")
    return python


def free_ports(count):
    """Ports that nobody has. They are held together, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


class Server:
    """The four processes and their folder."""

    def __init__(self, python, folder):
        self.python, self.folder = python, pathlib.Path(folder)
        names = ["proxy", "account", "container", "object"]
        self.ports = dict(zip(names, free_ports(len(names))))
        self.processes = {}
        self.ends = threading.Event()
        # Held while the server in front is started again, so that none is left over at the end.
        self.restart = threading.Lock()
        self.pid_file = self.folder / "proxy.pid"
        (self.folder / "devices/one").mkdir(parents=True)
        try:
            os.setxattr(self.folder / "devices/one", "user.swift.probe", b"yes")
        except OSError as error:
            fail(f"{folder} has no extended attributes ({error.strerror}), where Swift keeps metadata: set TMPDIR")
        (self.folder / "swift.conf").write_text(SHARED)
        for name in names:
            self.configure(name)
            if name != "proxy":
                self.build_ring(name)

    def configure(self, name):
        default = {
            "bind_ip": "127.0.0.1", "bind_port": self.ports[name], "workers": 0, "swift_dir": self.folder,
            "user": os.environ.get("USER") or subprocess.check_output(["id", "-un"], text=True).strip(),
            "devices": self.folder / "devices", "mount_check": "false", "disable_fallocate": "true",
            "log_level": "ERROR", "log_address": self.folder / "no-syslog", "fallocate_reserve": 0,
        }
        text = "[DEFAULT]\n" + "".join(f"{key} = {value}\n" for key, value in default.items())
        own = f"[pipeline:main]\npipeline = {name}-server\n[app:{name}-server]\nuse = egg:swift#{name}\n"
        (self.folder / f"{name}.conf").write_text(text + (PROXY if name == "proxy" else own))

    def build_ring(self, name):
        builder = self.python.parent / "swift-ring-builder"
        for step in (["create", "4", "1", "0"],
                     ["add", f"r1z1-127.0.0.1:{self.ports[name]}/one", "1"], ["rebalance"]):
            done = subprocess.run([builder, f"{name}.builder", *step], cwd=self.folder, capture_output=True, text=True)
            if done.returncode:
                fail(f"swift-ring-builder {name}.builder {' '.join(step)}: {done.stdout}{done.stderr}")

    def start(self, name):
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen([self.python, __file__, "--serve", name], cwd=self.folder, stdout=log, stderr=log)
        self.processes[name] = process
        if name == "proxy":
            self.wait(name)
            part = self.pid_file.with_suffix(".part")
            part.write_text(str(process.pid))
            part.rename(self.pid_file)

    def wait(self, name):
        end = time.monotonic() + 120
        while time.monotonic() < end and self.processes[name].poll() is None and not self.ends.is_set():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[name]}/healthcheck", timeout=10):
                    return
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.05)
        if not self.ends.is_set():
            log = (self.folder / f"{name}.log").read_text(errors="replace")
            fail(f"Swift's {name} server does not answer:\n{log[-4000:]}")

    def start_all(self):
        for name in ["account", "container", "object"]:
            self.start(name)
        for name in ["account", "container", "object"]:
            self.wait(name)
        self.start("proxy")
        self.create_bucket()
        threading.Thread(target=self.keep_proxy, daemon=True).start()

    def create_bucket(self):
        program = (
            "import botocore.session, botocore.config\n"
            f"client = botocore.session.Session().create_client('s3', endpoint_url='{self.url}',\n"
            f"    region_name='us-east-1', aws_access_key_id='{ACCESS}', aws_secret_access_key='{SECRET}',\n"
            "    config=botocore.config.Config(s3={'addressing_style': 'path'}))\n"
            f"client.create_bucket(Bucket='{BUCKET}')\n")
        subprocess.run([self.python, "-c", program], check=True)

    def keep_proxy(self):
        while not self.ends.is_set():
            self.processes["proxy"].wait()
            with self.restart:
                if not self.ends.is_set():
                    self.start("proxy")

    def stop(self):
        self.ends.set()
        with self.restart:
            for process in self.processes.values():
                if process.poll() is None:
                    process.kill()
        for process in self.processes.values():
            process.wait()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.ports['proxy']}"

    @property
    def environment(self):
        return {
            "TILE_TEST_S3": self.url, "TILE_TEST_S3_BUCKET": BUCKET, "TILE_TEST_S3_ACCESS_KEY": ACCESS,
            "TILE_TEST_S3_SECRET_KEY": SECRET, "TILE_TEST_S3_PID": str(self.pid_file), "TILE_TEST_PYTHON": str(self.python),
        }


class Memory:
    """In memcached's place. Without one each request asks the other servers for its account and its bucket anew."""

    def __init__(self):
        self.known = {}

    def get(self, key, **_):
        ends, text = self.known.get(key, (0, "null"))
        return json.loads(text) if time.monotonic() < ends else None

    def set(self, key, value, **options):
        lifetime = options.get("time") or float("inf")
        # As text, as memcached has it.
        self.known[key] = (time.monotonic() + lifetime, json.dumps(value))

    def delete(self, key, **_):
        self.known.pop(key, None)


def memory(_, **__):
    """The filter that gives the server in front one, as `swift.cache`."""
    known = Memory()

    def wrap(app):
        def answer(environment, start):
            environment["swift.cache"] = known
            return app(environment, start)
        return answer
    return wrap


def serve(name):
    """One of the servers, in the current folder; by the virtual environment's Python."""
    import swift.common.utils
    # The one file whose place Swift takes from no setting. It is read when the modules below are loaded.
    swift.common.utils.SWIFT_CONF_FILE = os.path.abspath("swift.conf")
    from swift.common.wsgi import run_wsgi
    sys.exit(run_wsgi(os.path.abspath(f"{name}.conf"), f"{name}-server"))


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


def main():
    if sys.argv[1:2] == ["--serve"]:
        return serve(sys.argv[2])
    python = venv()
    # A signal ends the server in order too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="s3-server-", ignore_cleanup_errors=True) as folder:
        server = Server(python, folder)
        try:
            server.start_all()
            if sys.argv[1:]:
                return run(sys.argv[1:], {**os.environ, **server.environment})
            for name, value in server.environment.items():
                print(f"{name}={value}", flush=True)
            while True:
                signal.pause()
        except KeyboardInterrupt:
            return 130
        finally:
            server.stop()


if __name__ == "__main__":
    sys.exit(main())
