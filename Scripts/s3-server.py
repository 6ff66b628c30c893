#!/usr/bin/env python3
"""Runs a command beside an S3 server: OpenStack Swift with its s3api, four processes on the loopback, one replica.

    Scripts/s3-server.py [--ceph] [--if-available] COMMAND [ARGUMENT ...]
                                   runs the command, stops the server, ends with the command's status
    Scripts/s3-server.py           prints where the server listens, and serves until Ctrl-C

With --ceph it is Ceph's RADOS gateway, with a monitor and a store of its own (Scripts/s3_ceph.py). With --if-available it says
so and ends with 0 where the server cannot be had.

Swift is the one of this machine's Python if that has it; or it comes from PyPI into a virtual environment of its own
(.build-s3/venv, or S3_VENV), which changes nothing else; or, where that cannot be had, from apt. Its data is in a temporary
folder that is removed at the end; the folder's file system must have extended attributes. No root is needed, but for apt.

The command finds in its environment
    TILE_TEST_S3           the server's URL
    TILE_TEST_S3_BUCKET    a bucket that exists and is empty
    TILE_TEST_S3_FULL      another one, which takes FULL_COUNT objects and no more
    TILE_TEST_S3_FULL_COUNT
    TILE_TEST_S3_ACCESS_KEY, TILE_TEST_S3_SECRET_KEY
    TILE_TEST_S3_SERVER    swift or ceph
    TILE_TEST_S3_PID       a file with the process id of the server in front. Killed, it is started again at the same
                           port, and the file then has the new id.
    TILE_TEST_PYTHON       a Python that has botocore; not set if there is none
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from s3_processes import BUCKET, FULL, FULL_COUNT, Processes, Unavailable, fail, free_ports, run

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = pathlib.Path(os.environ.get("S3_VENV", ROOT / ".build-s3/venv"))
PACKAGES = ["swift>=2.35,<3", "botocore>=1.34,<2"]
DEBIAN = ["python3-swift", "python3-botocore"]
ACCESS, SECRET, ACCOUNT = "test:tester", "testing", "AUTH_test"
# What Swift reads from /etc otherwise.
SHARED = "[swift-hash]\nswift_hash_path_suffix = tests\n[storage-policy:0]\nname = one\ndefault = yes\n"
# On a busy machine nothing fails for want of time.
PATIENCE = """conn_timeout = 60
node_timeout = 60
recoverable_node_timeout = 60
container_update_timeout = 60
"""
PROXY = """
[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck memory listing_formats s3api tempauth bulk container_quotas proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
allow_account_management = true
""" + PATIENCE + """
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:healthcheck]
use = egg:swift#healthcheck
[filter:memory]
paste.filter_factory = s3_processes:memory
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
[filter:container_quotas]
use = egg:swift#container_quotas
"""


def can_import(python, modules):
    return subprocess.run([python, "-c", f"import {modules}"], capture_output=True).returncode == 0


def has_swift(python):
    return shutil.which(python) and can_import(python, "swift.proxy.server")


def from_pypi():
    """Makes the virtual environment; returns whether it has Swift then."""
    print(f"s3-server: installing Swift from PyPI into {VENV}", file=sys.stderr)
    steps = [[sys.executable, "-m", "venv", VENV],
             [VENV / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1", *PACKAGES]]
    try:
        for step in steps:
            subprocess.run(step, check=True, timeout=600, capture_output=True)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"s3-server: that failed: {error}", file=sys.stderr)
        return False
    return has_swift(VENV / "bin/python")


def from_apt():
    if not shutil.which("apt-get"):
        return
    print(f"s3-server: installing {' '.join(DEBIAN)} with apt-get", file=sys.stderr)
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    install = [*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "--no-install-recommends", *DEBIAN]
    try:
        # The package lists may be absent or old, so fetch them only where the first try fails.
        if subprocess.run(install, timeout=600, capture_output=True).returncode:
            subprocess.run([*root, "apt-get", "update"], timeout=600, capture_output=True)
            subprocess.run(install, timeout=600, capture_output=True, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"s3-server: that failed: {error}", file=sys.stderr)


def find_swift():
    """A Python that has Swift."""
    own, system = VENV / "bin/python", pathlib.Path("/usr/bin/python3")
    for python in [own, *([] if "S3_VENV" in os.environ else [pathlib.Path(sys.executable), system])]:
        if has_swift(python):
            return python
    if from_pypi():
        return own
    from_apt()
    if has_swift(system):
        return system
    raise Unavailable("Swift could not be installed: it needs PyPI, or python3-swift from apt, "
                      "or S3_VENV with an environment that has it")


def has_attributes(folder):
    """Whether files there have extended attributes, where Swift keeps metadata."""
    probe = pathlib.Path(folder, "probe")
    probe.touch()
    try:
        os.setxattr(probe, "user.swift.probe", b"yes")
        return True
    except OSError:
        return False
    finally:
        probe.unlink()


def temporary_folder():
    """A folder for the server's data, in TMPDIR or, where that has no extended attributes, beside what was built."""
    own = ROOT / ".build-s3"
    for parent in [tempfile.gettempdir(), own]:
        os.makedirs(parent, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix="s3-server-", dir=parent, ignore_cleanup_errors=True)
        if has_attributes(folder.name):
            return folder
        folder.cleanup()
    raise Unavailable(f"neither {tempfile.gettempdir()} nor {own} has extended attributes, where Swift keeps metadata: set TMPDIR")


class Server(Processes):
    """Swift's four processes and their folder."""

    def __init__(self, python, folder):
        self.python = python
        names = ["proxy", "account", "container", "object"]
        self.ports = dict(zip(names, free_ports(len(names))))
        super().__init__(folder, "proxy", self.ports["proxy"])
        self.front_probe = f"{self.url}/healthcheck"
        (self.folder / "devices/one").mkdir(parents=True)
        (self.folder / "swift.conf").write_text(SHARED)
        for name in names:
            self.configure(name)

    def configure(self, name):
        default = {
            "bind_ip": "127.0.0.1", "bind_port": self.ports[name], "workers": 0, "swift_dir": self.folder,
            "user": os.environ.get("USER") or subprocess.check_output(["id", "-un"], text=True).strip(),
            "devices": self.folder / "devices", "mount_check": "false", "disable_fallocate": "true",
            "log_level": "ERROR", "log_address": self.folder / "no-syslog", "fallocate_reserve": 0,
        }
        text = "[DEFAULT]\n" + "".join(f"{key} = {value}\n" for key, value in default.items())
        own = f"[pipeline:main]\npipeline = {name}-server\n[app:{name}-server]\nuse = egg:swift#{name}\n{PATIENCE}"
        (self.folder / f"{name}.conf").write_text(text + (PROXY if name == "proxy" else own))

    def command(self, name):
        return [self.python, __file__, "--serve", name]

    def front_command(self):
        return self.command("proxy")

    def start_all(self):
        ports = json.dumps({name: port for name, port in self.ports.items() if name != "proxy"})
        made = subprocess.run([self.python, __file__, "--rings", ports], cwd=self.folder, capture_output=True, text=True)
        if made.returncode:
            fail(f"Swift's rings could not be made: {made.stdout}{made.stderr}")
        for name in ["account", "container", "object"]:
            self.launch(name, self.command(name))
        for name in ["account", "container", "object"]:
            self.wait_for(name, f"http://127.0.0.1:{self.ports[name]}/healthcheck")
        # Written into the servers behind, since the one in front gives leave for this only with a memcached beside it.
        for kind, path, fields in json.loads(made.stdout):
            head = {"X-Timestamp": f"{time.time():016.5f}", "X-Backend-Storage-Policy-Index": "0", **fields}
            url = f"http://127.0.0.1:{self.ports[kind]}/one/{path}"
            urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=head), timeout=120).close()
        self.start_front()
        self.keep_front()

    @property
    def environment(self):
        python = {"TILE_TEST_PYTHON": str(self.python)} if can_import(self.python, "botocore.session") else {}
        return {**self.environment_of("swift", ACCESS, SECRET), **python}


def make_rings(ports):
    """Writes the rings into the current folder, and prints what is to be put into which server; by Swift's Python."""
    import swift.common.utils
    swift.common.utils.SWIFT_CONF_FILE = os.path.abspath("swift.conf")
    swift.common.utils.validate_configuration()
    from swift.common.ring import Ring, RingBuilder
    for name, port in ports.items():
        builder = RingBuilder(4, 1, 0)
        builder.add_dev({"id": 0, "region": 1, "zone": 1, "weight": 1, "device": "one", "meta": "", "ip": "127.0.0.1",
                         "port": port, "replication_ip": "127.0.0.1", "replication_port": port})
        builder.rebalance()
        builder.get_ring().save(f"{name}.ring.gz")
    accounts, containers = Ring(".", ring_name="account"), Ring(".", ring_name="container")
    quota = {"X-Container-Meta-Quota-Count": str(FULL_COUNT)}
    print(json.dumps(
        [("account", f"{accounts.get_part(ACCOUNT)}/{ACCOUNT}", {})]
        + [("container", f"{containers.get_part(ACCOUNT, name)}/{ACCOUNT}/{name}", fields)
           for name, fields in [(BUCKET, {}), (FULL, quota)]]))


def serve(name):
    """One of the servers, in the current folder; by the virtual environment's Python."""
    import swift.common.utils
    # The one file whose place Swift takes from no setting. It is read when the modules below are loaded.
    swift.common.utils.SWIFT_CONF_FILE = os.path.abspath("swift.conf")
    from swift.common.wsgi import run_wsgi
    sys.exit(run_wsgi(os.path.abspath(f"{name}.conf"), f"{name}-server"))


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--serve"]:
        return serve(arguments[1])
    if arguments[:1] == ["--rings"]:
        return make_rings(json.loads(arguments[1]))
    options = set()
    while arguments and arguments[0] in ["--ceph", "--if-available"]:
        options.add(arguments.pop(0))
    # A signal ends the server in order too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if "--ceph" in options:
            import s3_ceph
            return serve_for(s3_ceph.Server, tempfile.TemporaryDirectory(prefix="s3-ceph-", ignore_cleanup_errors=True), arguments)
        python = find_swift()
        return serve_for(lambda folder: Server(python, folder), temporary_folder(), arguments)
    except Unavailable as error:
        if "--if-available" in options:
            print(f"s3-server: the tests against a real S3 server are skipped: {error}")
            return 0
        fail(error)


def serve_for(make_server, temporary, command):
    with temporary as folder:
        server = make_server(folder)
        try:
            server.start_all()
            if command:
                return run(command, {**os.environ, **server.environment})
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
