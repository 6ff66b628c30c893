#!/usr/bin/env python3
"""Runs the nginx configuration of Docs/operations.md in front of the proxy, and opens the page behind it in a browser.

    TILEPROXY_URL=http://127.0.0.1:8080 check-nginx.py /usr/bin/chromium PORT

The proxy's configuration says publicURL: https://tiles.example.org:PORT. nginx listens on 127.0.0.1:PORT, with a
certificate made for this run. The document admits 127.0.0.1 to the page; 127.0.0.2 stands for the rest of the world.
"""
import http.client
import json
import os
import pathlib
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse

from nginx_document import block, replace
from page_browser import Browser

PROXY = urllib.parse.urlsplit(os.environ["TILEPROXY_URL"]).netloc
HOST = "tiles.example.org"
SHOWN = "[...document.querySelectorAll('#map .leaflet-tile-pane img.leaflet-tile-loaded')]" \
    ".filter((i) => i.naturalWidth === 256).length"


def configuration(port, work):
    """The document's blocks, with this run's places in place of the example's."""
    text = replace(block("server_name"), [
        ("server 127.0.0.1:8080;", f"server {PROXY};"), ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/ssl/tiles.example.org.pem", f"{work}/certificate.pem"),
        ("/etc/ssl/private/tiles.example.org.key", f"{work}/key.pem")])
    text = text.rstrip().removesuffix("}") + block("location /maps/") + "}\n"
    places = "\n".join(f"    {kind}_temp_path {work}/{kind};" for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
    user = "user root;\n" if os.getuid() == 0 else ""
    return f"{user}daemon off;\npid {work}/pid;\nerror_log {work}/error.log;\nevents {{}}\nhttp {{\n    access_log off;\n{places}\n{text}}}\n"


def get(port, path, source):
    """Asks nginx from an address; the status, the fields and the body."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(
        "127.0.0.1", port, timeout=60, source_address=(source, 0), context=context)
    connection.request("GET", path, headers={"Host": f"{HOST}:{port}"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.headers, body


def fetch(check, port):
    for path, own, world in [("/tiles/world/1/1/0.png", 200, 200), ("/tiles/world.json", 200, 200),
                             ("/_tileproxy/health", 200, 200), ("/", 200, 403), ("/_tileproxy/", 200, 403),
                             ("/_tileproxy/stats.json", 200, 403), ("/_tileproxy/metrics", 200, 403),
                             ("/_tileproxy/states.json?source=world&z=0&x=0&y=0", 200, 403)]:
        found = [get(port, path, source)[0] for source in ["127.0.0.1", "127.0.0.2"]]
        check(f"{path}: {own} from within, {world} from outside", found == [own, world])
    _, _, body = get(port, "/tiles/world.json", "127.0.0.2")
    template = json.loads(body)["tiles"][0]
    check("TileJSON names the server in front", template.startswith(f"https://{HOST}:{port}/tiles/world/"))
    tile = urllib.parse.urlsplit(template.format(z=1, x=0, y=0)).path
    status, fields, _ = get(port, tile, "127.0.0.2")
    check("its tiles come from the proxy", status == 200 and fields["Cache-Status"].startswith("tileproxy;"))


def look(browser, check, url, name):
    browser.open(url, 1360, 860)
    browser.until(f"{name}: tiles", f"{SHOWN} >= 8")
    browser.until(f"{name}: figures", "document.getElementById('requests').textContent !== '–'")
    browser.until(f"{name}: live", "document.getElementById('live').textContent === 'live'")
    browser.click("#shade")
    browser.until(f"{name}: shading", "document.querySelectorAll('.cell.is-fresh').length >= 4")
    browser.picture(f"nginx-{name}")
    complaints = browser.complaints()
    check(f"{name}: map, figures and shading, and nothing in the console", not complaints)
    for complaint in complaints:
        print("      " + complaint)


def main():
    path, port = sys.argv[1], int(sys.argv[2])
    failures = []

    def check(what, isTrue):
        print(("ok    " if isTrue else "FAIL  ") + what)
        if not isTrue:
            failures.append(what)

    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
             "1", "-subj", f"/CN={HOST}", "-keyout", f"{work}/key.pem", "-out", f"{work}/certificate.pem"],
            check=True, capture_output=True)
        (pathlib.Path(work) / "nginx.conf").write_text(configuration(port, work))
        nginx = subprocess.Popen(["nginx", "-p", work, "-c", f"{work}/nginx.conf"])
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    get(port, "/_tileproxy/health", "127.0.0.1")
                    break
                except OSError as error:
                    if nginx.poll() is not None or time.monotonic() > deadline:
                        log = (pathlib.Path(work) / "error.log").read_text()
                        raise SystemExit(f"check-nginx: nginx does not run with the document's block: {error}\n{log}")
                    time.sleep(0.1)
            fetch(check, port)
            browser = Browser(path, profile, "--ignore-certificate-errors", f"--host-resolver-rules=MAP {HOST} 127.0.0.1")
            look(browser, check, f"https://{HOST}:{port}/", "at-the-root")
            look(browser, check, f"https://{HOST}:{port}/maps/", "below-a-path")
            browser.close()
        finally:
            nginx.terminate()
            nginx.wait(60)
    if failures:
        sys.exit(f"check-nginx: {len(failures)} of the checks failed")
    print("check-nginx: ok")


main()
