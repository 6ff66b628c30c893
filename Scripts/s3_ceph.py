"""Ceph's RADOS gateway for Scripts/s3-server.py: a monitor, a store of one replica in memory, and the gateway.

All of it is in one temporary folder and on free ports of the loopback; nothing of systemd, of /etc/ceph or /var is used. It needs
ceph-mon, ceph-osd, ceph-common and radosgw of Debian or Ubuntu.
"""
import hashlib
import hmac
import os
import pathlib
import shutil
import subprocess
import time
import urllib.request
import uuid

from s3_processes import BUCKET, FULL, FULL_COUNT, Processes, Unavailable, fail, free_ports

PROGRAMS = ["ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin"]
ACCESS, SECRET = "tester", "testing"
SETTINGS = """
[global]
fsid = {id}
mon host = v2:127.0.0.1:{mon}
mon initial members = a
mon data = {folder}/mon
mon allow pool size one = true
mon data avail crit = 0
keyring = {folder}/keyring
ms bind msgr1 = false
public addr = 127.0.0.1
cluster addr = 127.0.0.1
run dir = {folder}
crash dir = {folder}
admin socket = {folder}/$name.$pid.asok
log file = {folder}/$name.log
log to stderr = false
err to stderr = false
plugin dir = {libraries}/ceph
erasure code dir = {libraries}/ceph/erasure-code
osd class dir = {libraries}/rados-classes
osd data = {folder}/osd
osd objectstore = memstore
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
rgw data = {folder}/gateway
rgw frontends = beast endpoint=127.0.0.1:{gateway}
rgw enable apis = s3
rgw thread pool size = 32
rgw bucket quota ttl = 0
rgw run sync thread = false
rgw enable gc threads = false
rgw enable lc threads = false
"""


class Server(Processes):
    def __init__(self, folder):
        os.environ["PATH"] += ":/usr/sbin:/sbin"
        missing = [name for name in PROGRAMS if not shutil.which(name)]
        if missing:
            raise Unavailable(
                f"there is no {missing[0]} here (Debian: apt-get install ceph-mon ceph-osd radosgw ceph-common)")
        self.mon, port = free_ports(2)
        super().__init__(folder, "gateway", port)
        self.front_probe = self.url
        self.id = str(uuid.uuid4())
        self.configuration = self.folder / "ceph.conf"
        libraries = self.libraries()
        for name in ["mon", "osd", "gateway"]:
            (self.folder / name).mkdir()
        self.configuration.write_text(SETTINGS.format(
            id=self.id, folder=self.folder, mon=self.mon, gateway=port, libraries=libraries))

    @staticmethod
    def libraries():
        for folder in [*sorted(pathlib.Path("/usr/lib").glob("*/rados-classes")), pathlib.Path("/usr/lib64/rados-classes")]:
            if folder.is_dir():
                return folder.parent
        raise Unavailable("there are no rados-classes here (Debian: apt-get install ceph-osd)")

    def tool(self, program, *arguments):
        done = subprocess.run([program, "-c", self.configuration, *arguments], cwd=self.folder, capture_output=True,
                              text=True, timeout=600)
        if done.returncode:
            fail(f"{program} {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")
        return done.stdout

    def daemon(self, program, *arguments):
        return [program, "-c", self.configuration, "-f", *arguments]

    def front_command(self):
        return self.daemon("radosgw", "-n", "client.gateway")

    def start_all(self):
        monmap = self.folder / "monmap"
        self.tool("monmaptool", "--create", "--fsid", self.id, "--addv", "a", f"[v2:127.0.0.1:{self.mon}]", monmap)
        keyring = self.folder / "keyring"
        keyring.touch()
        for name in ["mon.", "client.admin", "client.gateway", "osd.0"]:
            self.tool("ceph-authtool", keyring, "-n", name, "--gen-key", "--cap", "mon", "allow *", "--cap", "osd", "allow *")
        self.tool("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring)
        self.launch("mon", self.daemon("ceph-mon", "-i", "a"))
        osd = str(uuid.uuid4())
        number = self.tool("ceph", "osd", "create", osd).strip()
        self.tool("ceph-osd", "-i", number, "--mkfs", "--osd-uuid", osd)
        self.launch("osd", self.daemon("ceph-osd", "-i", number))
        self.start_front()
        self.tool("radosgw-admin", "user", "create", "--uid=tester", "--display-name=tester",
                  f"--access-key={ACCESS}", f"--secret-key={SECRET}")
        self.create_buckets()
        self.tool("radosgw-admin", "quota", "set", "--quota-scope=bucket", f"--bucket={FULL}", "--uid=tester",
                  f"--max-objects={FULL_COUNT}")
        self.tool("radosgw-admin", "quota", "enable", "--quota-scope=bucket", f"--bucket={FULL}", "--uid=tester")
        self.keep_front()

    def create_buckets(self):
        """Buckets can only be made by requests, which have to be signed (signature version 4)."""
        for bucket in [BUCKET, FULL]:
            date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            scope = f"{date[:8]}/us-east-1/s3/aws4_request"
            empty = hashlib.sha256().hexdigest()
            fields = {"host": self.url.removeprefix("http://"), "x-amz-content-sha256": empty, "x-amz-date": date}
            names = ";".join(fields)
            head = "".join(f"{name}:{value}\n" for name, value in fields.items())
            request = f"PUT\n/{bucket}\n\n{head}\n{names}\n{empty}"
            text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
            key = f"AWS4{SECRET}".encode()
            for part in [*scope.split("/"), text]:
                key = hmac.digest(key, part.encode(), "sha256")
            fields["Authorization"] = (
                f"AWS4-HMAC-SHA256 Credential={ACCESS}/{scope}, SignedHeaders={names}, Signature={key.hex()}")
            made = urllib.request.Request(f"{self.url}/{bucket}", method="PUT", headers=fields)
            urllib.request.urlopen(made, timeout=120).close()

    @property
    def environment(self):
        return self.environment_of("ceph", ACCESS, SECRET)
