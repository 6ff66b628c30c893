"""Checks tileproxy's Unix sockets and PROXY protocol with independent programs: HAProxy, nginx and curl.

usage: check-haproxy.py TILEPROXY HAPROXY

Clients connect from addresses of their own (127.0.0.2 and so on, and ::1); the access log has to name them.
"""

import http.client
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time

from nginx_document import block, replace

SOCKET = "/run/tileproxy/http.sock"  # in the document
PATH = "/tiles/a/0/0/0.png"
failures = []


def check(what, is_true, detail=""):
    print(f"  {'ok  ' if is_true else 'FAIL'} {what}{'' if is_true or not detail else f': {detail}'}")
    if not is_true:
        failures.append(what)


def free_ports(count):
    """Ports that are free now; all are held until the last is found, so that none comes twice."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def wait_for(what, found):
    for _ in range(6000):
        value = found()
        if value:
            return value
        time.sleep(0.01)
    raise SystemExit(f"check-haproxy: waited for a minute for {what}")


def get(port, source=None, host="127.0.0.1", tls=None):
    """Asks for a tile on a connection of its own; the status, or None without an answer."""
    try:
        wire = socket.create_connection((host, port), timeout=60, source_address=(source, 0) if source else None)
        if tls:
            wire = tls.wrap_socket(wire, server_hostname="localhost")
        wire.sendall(f"GET {PATH}?from={source} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = http.client.HTTPResponse(wire)
        answer.begin()
        answer.read()
        wire.close()
        return answer.status
    except (OSError, http.client.HTTPException):
        return None


class Program:
    """A program whose messages go to a file."""

    def __init__(self, name, arguments, work, environment=None):
        self.log = work / f"{name}.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                arguments, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)

    def said(self):
        return self.log.read_text()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


def tileproxy(program, work):
    (work / "tiles/0/0").mkdir(parents=True)
    (work / "tiles/0/0/0.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
         work / "key.pem", "-out", work / "certificate.pem", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    (work / "tileproxy.yaml").write_text(f"""
cache: {work}/cache
listen: [127.0.0.1:0, "https://127.0.0.1:0", "unix:{work}/proxy.sock", "unix:{work}/http.sock"]
proxyProtocol: [127.0.0.1:0, "https://127.0.0.1:0", "unix:{work}/proxy.sock"]
socketMode: "0666"
trustedProxies: [127.0.0.1, unix]
tls: {{certificate: {work}/certificate.pem, key: {work}/key.pem}}
accessLog: {{path: {work}/access.log}}
sources: {{a: {{template: "{work}/tiles/{{z}}/{{x}}/{{y}}.png"}}}}
""")
    proxy = Program("tileproxy", [program, "serve", "--config", work / "tileproxy.yaml"], work)
    line = wait_for("tileproxy", lambda: re.search(r"address=(.*) listening$", proxy.said(), re.M) or proxy.process.poll())
    if not isinstance(line, re.Match):
        raise SystemExit(f"check-haproxy: tileproxy did not start: {proxy.said()}")
    ports = [int(port) for port in re.findall(r"127\.0\.0\.1:(\d+) \(PROXY\)", line.group(1))]
    check("the log names ports and sockets", len(ports) == 2 and f"unix:{work}/http.sock" in line.group(1), line.group(1))
    return proxy, ports


def haproxy_configuration(work, ways):
    text = "defaults\n    mode tcp\n    timeout connect 60s\n    timeout client 60s\n    timeout server 60s\n"
    for port, host, server in ways:
        text += f"listen on{port}\n    bind {host}:{port}\n    server one {server}\n"
    (work / "haproxy.cfg").write_text(text)
    return work / "haproxy.cfg"


def clients(work, count):
    """The clients of the access log once it has so many lines."""
    log = work / "access.log"
    wait_for(f"{count} lines of the access log", lambda: len(log.read_text().splitlines()) >= count)
    return [line.split()[0] for line in log.read_text().splitlines()]


def with_haproxy(program, work, plain, secure):
    tls = ssl.create_default_context(cafile=work / "certificate.pem")
    ports = free_ports(9)
    options = "send-proxy-v2 proxy-v2-options crc32c,unique-id,ssl,cert-cn"
    ways = [
        ("version 1", "127.0.0.1", f"127.0.0.1:{plain} send-proxy", None, "127.0.0.2"),
        ("version 2", "127.0.0.1", f"127.0.0.1:{plain} send-proxy-v2", None, "127.0.0.3"),
        ("version 2 with extensions", "127.0.0.1", f"127.0.0.1:{plain} {options}", None, "127.0.0.4"),
        ("version 1, then TLS", "127.0.0.1", f"127.0.0.1:{secure} send-proxy", tls, "127.0.0.5"),
        ("version 2, then TLS", "127.0.0.1", f"127.0.0.1:{secure} send-proxy-v2", tls, "127.0.0.6"),
        ("version 1 by a Unix socket", "127.0.0.1", f"unix@{work}/proxy.sock send-proxy", None, "127.0.0.7"),
        ("version 2 by a Unix socket", "127.0.0.1", f"unix@{work}/proxy.sock send-proxy-v2", None, "127.0.0.8"),
        ("version 1 with IPv6", "[::1]", f"127.0.0.1:{plain} send-proxy", None, "::1"),
        ("version 2 with IPv6", "[::1]", f"127.0.0.1:{plain} send-proxy-v2", None, "::1"),
    ]
    dead = free_ports(3)
    silent = [
        (dead[0], "127.0.0.1", f"127.0.0.1:{plain}"), (dead[1], "127.0.0.1", f"127.0.0.1:{secure}"),
        (dead[2], "127.0.0.1", f"unix@{work}/proxy.sock"),
    ]
    checked = free_ports(2)
    checks = [(port, "127.0.0.1", f"127.0.0.1:{plain} check inter 50ms {how}")
              for port, how in zip(checked, ["send-proxy-v2", "send-proxy"])]
    configuration = haproxy_configuration(
        work, [(port, way[1], way[2]) for port, way in zip(ports, ways)] + silent + checks)
    proxy = Program("haproxy", [program, "-f", configuration, "-db"], work, os.environ)
    wait_for("haproxy", lambda: proxy.process.poll() or socket.socket().connect_ex(("127.0.0.1", ports[0])) == 0)
    check("haproxy runs", proxy.process.poll() is None, proxy.said())
    # The connection with which haproxy was waited for is no request.
    for port, (name, host, _, secured, source) in zip(ports, ways):
        status = get(port, source, host.strip("[]"), secured)
        check(f"{name}: answered", status == 200, f"{status}")
    expected = [way[4] for way in ways]
    found = clients(work, len(ways))
    check("the access log has the clients' addresses", found == expected, f"{found}, not {expected}")
    # Health checks say LOCAL or UNKNOWN and go away; nothing of it is refused.
    time.sleep(0.5)
    check("haproxy's checks find it up", not re.search(r"(DOWN|no server available)", proxy.said()), proxy.said())
    check("nothing was refused", len(clients(work, 0)) == len(ways), f"{clients(work, 0)}")
    for port, _, server in silent:
        status = get(port, "127.0.0.9", tls=tls if str(secure) in server else None)
        check(f"without a header: closed ({server.split('/')[-1]})", status is None, f"{status}")
    found = clients(work, len(ways) + 3)[len(ways):]
    check("they are in the log by the peer's address", found == ["127.0.0.1", "127.0.0.1", "unix"], f"{found}")
    proxy.stop()


def with_nginx(work):
    nginx = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if not nginx:
        print("  (nginx: skipped, it is not here)")
        return
    port = free_ports(1)[0]
    location = replace(block(SOCKET), [(SOCKET, f"{work}/http.sock")])
    fields = re.findall(r"^ *proxy_(?:http_version|set_header) .*;$", block("server_name"), re.M)
    places = "\n".join(f"{kind}_temp_path {work}/{kind};" for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
    user = "user root;\n" if os.getuid() == 0 else ""
    (work / "nginx.conf").write_text(
        f"{user}daemon off;\npid {work}/nginx.pid;\nerror_log {work}/nginx-error.log;\nevents {{}}\nhttp {{\n"
        f"access_log off;\n{places}\nserver {{\nlisten 127.0.0.1:{port};\n" + "\n".join(fields) + f"\n{location}}}\n}}\n")
    before = len(clients(work, 0))
    proxy = Program("nginx", [nginx, "-c", work / "nginx.conf"], work)
    wait_for("nginx", lambda: proxy.process.poll() or socket.socket().connect_ex(("127.0.0.1", port)) == 0)
    status = get(port, "127.0.0.2")
    check("nginx by a Unix socket: answered", status == 200, f"{status} {proxy.said()}")
    found = clients(work, before + 1)[before:]
    check("the client is the one that nginx names", found == ["127.0.0.2"], f"{found}")
    proxy.stop()


def with_curl(work, plain):
    curl = shutil.which("curl")
    if not curl:
        print("  (curl: skipped, it is not here)")
        return
    before = len(clients(work, 0))
    for name, arguments in [
        ("curl by a Unix socket", ["--unix-socket", work / "http.sock", f"http://localhost{PATH}"]),
        ("curl with a PROXY header", ["--haproxy-protocol", f"http://127.0.0.1:{plain}{PATH}"]),
    ]:
        run = subprocess.run([curl, "-s", "-o", "/dev/null", "-w", "%{http_code}", *arguments], capture_output=True, text=True)
        check(name, run.stdout == "200", f"{run.stdout} {run.stderr}")
    found = clients(work, before + 2)[before:]
    check("they are named", found == ["unix", "127.0.0.1"], f"{found}")


def main():
    program, haproxy = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="tp-", dir="/tmp") as folder:
        work = pathlib.Path(folder)
        work.chmod(0o755)
        proxy, (plain, secure) = tileproxy(program, work)
        try:
            with_haproxy(haproxy, work, plain, secure)
            with_nginx(work)
            with_curl(work, plain)
        finally:
            status = proxy.stop()
        check("tileproxy ends in order", status == 0, proxy.said())
        check("its sockets are gone", not list(work.glob("*.sock")))
    if failures:
        raise SystemExit(f"check-haproxy: {len(failures)} failed")
    print("check-haproxy: ok")


main()
