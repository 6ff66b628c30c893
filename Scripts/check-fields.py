"""What tileproxy makes of random `CDN-Cache-Control` fields, beside PyPI's http-sf, an independent reader of structured fields (RFC 9651).

  check-fields.py TILEPROXY [COUNT] [SEED]

Each response has `Cache-Control: max-age=60` too, which counts where the targeted field is no dictionary (RFC 9213, section 2.1).
"""
import http.client, http.server, os, random, re, socket, subprocess, sys, tempfile, threading, time

import http_sf

PROXY, COUNT, SEED = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4000, int(sys.argv[3]) if len(sys.argv) > 3 else 1
LONGEST = 31536000  # seconds for which tileproxy keeps anything at most
GUARD = 60  # seconds after which something hangs
said = {}  # by path, the lines of the field


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        lines = [f"{name}: {value}".encode("latin-1") for name, value in
                 [("Content-Length", "1"), ("Content-Type", "text/plain"), ("Cache-Control", "max-age=60")]
                 + [("CDN-Cache-Control", line) for line in said[self.path]]]
        self.wfile.write(b"HTTP/1.1 200 OK\r\nDate: %s\r\n" % self.date_time_string().encode() + b"\r\n".join(lines) + b"\r\n\r\nx")


KEYS = ["max-age", "s-maxage", "max-age", "s-maxage", "no-store", "private", "no-cache", "public", "immutable", "*x", "a_b.c-d*"]
VALUES = ["=10", "=2000", "=0", "=-5", "=007", "=10.5", "=999999999999999", "=?1", "=?0", "", "=tok/en:a", "=*t", '="te\\"xt"', "=:aGk=:", "=:aGk:", "=@10",
          "=@-1", '=%"t%c3%a9xt"', "=()", '=(a  "b" 3)', "=(a;x=1 b);y"]
PARAMETERS = ["", "", "", ";a", ";a=1;b", "; a=tok", ";  a", ';a="x"']
BETWEEN = [", ", ",", " , ", ",\t"]
# What is no dictionary, or only by a hair.
BAD_KEYS = ["Max-Age", "", "1a", "-a", "max age"]
BAD_VALUES = ["=1.", "=1.2345", "=1234567890123456", "=?2", '="te\\xt"', '="open', "=:a:", "=:!!:", "=@1.5", '=%"t%C3"', '=%"t%c3"', "=(a,b)", "=(", "=", "= 10",
              "=--1", "=1-", "=1.5.2", '="a\tb"', '="\xe9"', "=(a b"]
BAD_PARAMETERS = [";A", ";a=(1)", ";", " ;a", ";\ta"]
BAD_BETWEEN = [" ,,", ";", " ", "\t"]


def value(randomness):
    bad = randomness.choice([0, 0, 0, 0.1, 0.5])

    def one(good, others):
        return randomness.choice(others if randomness.random() < bad else good)

    text = ""
    for number in range(randomness.choice([0, 1, 1, 2, 2, 3, 5])):
        text += (one(BETWEEN, BAD_BETWEEN) if number else "") + one(KEYS, BAD_KEYS) + one(VALUES, BAD_VALUES) + one(PARAMETERS, BAD_PARAMETERS)
    text += one([""], [",", ", ", "x", ";"])
    if text and randomness.random() < bad:
        place = randomness.randrange(len(text))
        text = text[:place] + chr(randomness.choice([33, 34, 40, 44, 58, 61, 63, 64, 92, 126, 0xE9])) + text[place + 1:]
    return text.strip(" \t")


def expected(lines):
    """The lifetime in seconds, None for an answer that is not reused; "either" where the types are such that a cache may choose."""
    try:
        fields = http_sf.parse(", ".join(line for line in lines if line).encode("latin-1"), tltype="dictionary")
    except Exception:
        return 60
    if not fields:
        return 60
    found = {key: value[0] for key, value in fields.items()}
    for key in ["no-store", "private", "no-cache"]:
        if key in found and not isinstance(found[key], bool):
            return "either"
        if found.get(key):
            return None
    for key in ["s-maxage", "max-age"]:
        if key in found and type(found[key]) is int:
            return min(max(0, found[key]), LONGEST) or None
    return None


def main():
    randomness = random.Random(SEED)
    for number in range(COUNT):
        text = value(randomness)
        said[f"/{number}"] = [text]
        if ", " in text and '"' not in text and "(" not in text and randomness.random() < 0.2:
            said[f"/{number}"] = [part.strip(" \t") for part in text.split(", ", 1)]
    origin = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    threading.Thread(target=origin.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "http.sock")
        proxy = subprocess.Popen([PROXY, "serve", "--cache", os.path.join(work, "cache"), "--listen", f"unix:{path}",
                                  "--upstream", f"/=http://127.0.0.1:{origin.server_port}"], stderr=subprocess.DEVNULL)
        try:
            wrong = compare(path)
        finally:
            proxy.terminate()
            proxy.wait(GUARD)
    sys.exit(1 if wrong else 0)


def compare(path):
    until = time.monotonic() + GUARD
    while not os.path.exists(path):
        if time.monotonic() > until:
            sys.exit("check-fields: tileproxy does not listen")
        time.sleep(0.05)
    connection = http.client.HTTPConnection("tiles", timeout=GUARD)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(path)

    def ask(target):
        connection.request("GET", target)
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.getheader("Cache-Status", "")

    wrong, counts = 0, {"a lifetime": 0, "not reused": 0, "no dictionary": 0, "either": 0}
    for target, lines in said.items():
        ask(target)
        status, cache = ask(target)
        found = re.search(r"; hit; ttl=(-?\d+)", cache)
        seconds, wanted = int(found[1]) if found else None, expected(lines)
        counts["either" if wanted == "either" else "not reused" if wanted is None else "no dictionary" if wanted == 60 else "a lifetime"] += 1
        # The clock goes on meanwhile.
        held = wanted == "either" or seconds == wanted or None not in (wanted, seconds) and wanted - GUARD <= seconds <= wanted
        if status != 200 or not held:
            wrong += 1
            if wrong <= 20:
                print(f"check-fields: {lines!r}: {wanted} was expected, and the answer is {status} {cache!r}")
    print(f"check-fields: {len(said)} fields, seed {SEED}: " + ", ".join(f"{name} {count}" for name, count in counts.items()) + f"; {wrong} wrong")
    return wrong


main()
