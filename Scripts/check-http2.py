"""Checks tileproxy's TLS and HTTP/2 with an independent client (h2, hyperframe and hpack from PyPI).

usage: check-http2.py TILEPROXY

Requests are compared with the same ones over HTTP/1.1; frames that break RFC 9113 are made with hyperframe; certificates
are replaced on SIGHUP; SIGTERM ends what is under way.
"""

import http.client
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

import h2.config
import h2.connection
import h2.events
import hpack
from hyperframe.frame import (
    ContinuationFrame, DataFrame, Frame, GoAwayFrame, HeadersFrame, PingFrame, PriorityFrame, RstStreamFrame, SettingsFrame,
    WindowUpdateFrame,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED, FRAME_SIZE_ERROR = 0, 1, 3, 5, 6
REFUSED_STREAM, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 7, 9, 11
failures = []


def check(what, is_true, detail=""):
    print(f"  {'ok  ' if is_true else 'FAIL'} {what}{'' if is_true or not detail else f': {detail}'}")
    if not is_true:
        failures.append(what)


def certificate(folder, name):
    """Makes a certificate for localhost, signed by itself."""
    cert, key = os.path.join(folder, f"{name}.pem"), os.path.join(folder, f"{name}.key")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key,
         "-out", cert, "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True)
    return cert, key


def connect(port, protocols=("h2",), trust=None, newest=None):
    """A TLS connection; without a certificate to trust, any is."""
    context = ssl.create_default_context(cafile=trust) if trust else ssl._create_unverified_context()
    context.set_alpn_protocols(list(protocols))
    if newest:
        context.maximum_version = newest
    plain = socket.create_connection(("127.0.0.1", port), timeout=60)
    return context.wrap_socket(plain, server_hostname="localhost")


class Client:
    """A connection by h2."""

    def __init__(self, port, **options):
        self.wire = connect(port, **options)
        assert self.wire.selected_alpn_protocol() == "h2", "h2 was not agreed on"
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.flush()
        self.answers = {}
        self.goodbye = None
        self.is_closed = False

    def flush(self):
        self.wire.sendall(self.h2.data_to_send())

    def request(self, path, method="GET", fields=(), body=None):
        stream = self.h2.get_next_available_stream_id()
        head = [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path), *fields]
        self.h2.send_headers(stream, head, end_stream=body is None)
        if body is not None:
            self.h2.send_data(stream, body, end_stream=True)
        self.answers[stream] = {"status": None, "fields": [], "body": b"", "done": False, "reset": None}
        self.flush()
        return stream

    def pump(self):
        """Reads once; False at the end."""
        data = self.wire.recv(65536)
        if not data:
            self.is_closed = True
            return False
        for event in self.h2.receive_data(data):
            answer = self.answers.get(getattr(event, "stream_id", None))
            if isinstance(event, h2.events.ResponseReceived):
                answer["status"] = int(dict(event.headers)[":status"])
                answer["fields"] = [f for f in event.headers if not f[0].startswith(":")]
            elif isinstance(event, h2.events.DataReceived):
                answer["body"] += event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                answer["done"] = True
            elif isinstance(event, h2.events.StreamReset):
                answer["reset"] = int(event.error_code)
                answer["done"] = True
            elif isinstance(event, h2.events.ConnectionTerminated):
                self.goodbye = (int(event.error_code), event.last_stream_id)
        self.flush()
        return True

    def answer(self, stream):
        while not self.answers[stream]["done"] and self.pump():
            pass
        return self.answers[stream]

    def get(self, path, **options):
        return self.answer(self.request(path, **options))


def over_http11(port, path, method="GET", fields=()):
    wire = http.client.HTTPSConnection("localhost", port, context=ssl._create_unverified_context(), timeout=60)
    wire.request(method, path, headers=dict(fields))
    response = wire.getresponse()
    body = response.read()
    wire.close()
    return response.status, [(name.lower(), value) for name, value in response.getheaders()], body


# MARK: Frames by hand


def frame(kind, stream=0, **members):
    return kind(stream, **members).serialize()


def headers(stream, fields, flags=("END_HEADERS", "END_STREAM"), encoder=None):
    made = HeadersFrame(stream, (encoder or hpack.Encoder()).encode(fields))
    for flag in flags:
        made.flags.add(flag)
    return made.serialize()


GET = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/tiles/f.json")]


def without(name):
    return [field for field in GET if field[0] != name]


def flood(count, make):
    return b"".join(make(i) for i in range(count))


def reset_at_once(i):
    stream = 2 * i + 1
    return headers(stream, GET, ("END_HEADERS",)) + frame(RstStreamFrame, stream, error_code=8)


def opened(stream=1):
    return headers(stream, [(":method", "PUT"), *GET[1:]], ("END_HEADERS",))


def continued(count):
    block = hpack.Encoder().encode(GET)
    first = HeadersFrame(1, block)
    first.flags.add("END_STREAM")
    return first.serialize() + flood(count, lambda i: frame(ContinuationFrame, 1, data=b""))


# What is sent behind preface and settings, and the codes of the GOAWAY that may answer it.
BROKEN = [
    ("3.4 no preface", {PROTOCOL_ERROR}, None),
    ("4.2 a frame that is too large", {FRAME_SIZE_ERROR}, frame(DataFrame, 1, data=b"x" * 16385)),
    ("4.3 fields that cannot be decompressed", {COMPRESSION_ERROR}, b"\0\0\4\1\5\0\0\0\1\xff\xff\xff\xff"),
    ("RFC 7541 2.3.3 an index beyond the tables", {COMPRESSION_ERROR}, b"\0\0\1\1\5\0\0\0\1\xfe"),
    ("5.1 DATA on an idle stream", {PROTOCOL_ERROR}, frame(DataFrame, 1, data=b"x")),
    ("5.1 RST_STREAM on an idle stream", {PROTOCOL_ERROR}, frame(RstStreamFrame, 1, error_code=8)),
    ("5.1.1 an even stream", {PROTOCOL_ERROR}, headers(2, GET)),
    ("5.1.1 a stream below the last", {PROTOCOL_ERROR, STREAM_CLOSED}, opened(5) + headers(3, GET)),
    ("5.1.2 a stream too many", {PROTOCOL_ERROR, REFUSED_STREAM}, flood(101, lambda i: opened(2 * i + 1))),
    ("6.1 DATA on no stream", {PROTOCOL_ERROR}, b"\0\0\1\0\0\0\0\0\0x"),
    ("6.2 HEADERS on no stream", {PROTOCOL_ERROR}, b"\0\0\1\1\5\0\0\0\0\x82"),
    ("6.4 RST_STREAM of three bytes", {FRAME_SIZE_ERROR}, opened() + b"\0\0\3\3\0\0\0\0\1\0\0\0"),
    ("6.5 SETTINGS of three bytes", {FRAME_SIZE_ERROR}, b"\0\0\3\4\0\0\0\0\0\0\0\0"),
    ("6.5 SETTINGS on a stream", {PROTOCOL_ERROR}, b"\0\0\0\4\0\0\0\0\1"),
    ("6.5.2 ENABLE_PUSH 2", {PROTOCOL_ERROR}, frame(SettingsFrame, settings={2: 2})),
    ("6.5.2 a window of 2^31", {FLOW_CONTROL_ERROR}, frame(SettingsFrame, settings={4: 2**31})),
    ("6.5.2 MAX_FRAME_SIZE 16383", {PROTOCOL_ERROR}, frame(SettingsFrame, settings={5: 16383})),
    ("6.7 PING of three bytes", {FRAME_SIZE_ERROR}, b"\0\0\3\6\0\0\0\0\0abc"),
    ("6.9 WINDOW_UPDATE by nothing", {PROTOCOL_ERROR}, b"\0\0\4\x08\0\0\0\0\0\0\0\0\0"),
    ("6.9.1 a window beyond 2^31-1", {FLOW_CONTROL_ERROR}, frame(WindowUpdateFrame, window_increment=2**31 - 1)),
    ("6.10 CONTINUATION of nothing", {PROTOCOL_ERROR}, frame(ContinuationFrame, 1, data=b"")),
    ("6.10 PING amid fields", {PROTOCOL_ERROR}, continued(0) + frame(PingFrame, opaque_data=b"12345678")),
    ("10.5 CONTINUATION without end", {PROTOCOL_ERROR, ENHANCE_YOUR_CALM}, continued(1000)),
    ("10.5 rapid reset", {ENHANCE_YOUR_CALM}, flood(1000, reset_at_once)),
    ("10.5 PING without end", {ENHANCE_YOUR_CALM}, flood(1000, lambda i: frame(PingFrame, opaque_data=b"12345678"))),
    ("10.5 SETTINGS without end", {ENHANCE_YOUR_CALM}, flood(1000, lambda i: frame(SettingsFrame))),
    ("10.5 PRIORITY without end", {ENHANCE_YOUR_CALM}, flood(1000, lambda i: frame(PriorityFrame, 2 * i + 1, depends_on=0))),
    ("10.5 WINDOW_UPDATE without end", {ENHANCE_YOUR_CALM}, flood(6000, lambda i: frame(WindowUpdateFrame, window_increment=1))),
    ("10.5 empty DATA without end", {ENHANCE_YOUR_CALM}, opened() + flood(100, lambda i: frame(DataFrame, 1, data=b""))),
]

# Fields of a request that is malformed: its stream is reset.
MALFORMED = [
    ("8.2.1 capitals in a name", GET + [("X-A", "1")]),
    ("8.2.1 a line's end in a value", GET + [("x", "1\r\nhost: b")]),
    ("8.2.1 NUL in a value", GET + [("x", "a\0b")]),
    ("8.2.1 a blank before a value", GET + [("x", " 1")]),
    ("8.2.2 connection", GET + [("connection", "close")]),
    ("8.2.2 transfer-encoding", GET + [("transfer-encoding", "chunked")]),
    ("8.2.2 upgrade", GET + [("upgrade", "h2c")]),
    ("8.2.2 te: gzip", GET + [("te", "gzip")]),
    ("8.3 an unknown pseudo-field", GET + [(":x", "1")]),
    ("8.3 a pseudo-field behind others", [("x", "1")] + GET),
    ("8.3 a pseudo-field twice", [(":path", "/b")] + GET),
    ("8.3.1 no :method", without(":method")),
    ("8.3.1 no :scheme", without(":scheme")),
    ("8.3.1 no :path", without(":path")),
    ("8.3.1 an empty :path", without(":path") + [(":path", "")]),
    ("8.3.1 a :path with a line's end", without(":path") + [(":path", "/ HTTP/1.1\r\nx: y")]),
    ("8.3.1 :authority and another host", GET + [("host", "elsewhere")]),
    ("8.1.1 a length and no body", GET + [("content-length", "5")]),
]


def frames(wire):
    """Reads frames until the other side closes."""
    data = b""
    while True:
        while len(data) >= 9:
            made, length = Frame.parse_frame_header(memoryview(data[:9]))
            if len(data) < 9 + length:
                break
            made.parse_body(memoryview(data[9 : 9 + length]))
            data = data[9 + length :]
            yield made
        try:
            more = wire.recv(65536)
        except (ConnectionError, ssl.SSLError):
            return
        if not more:
            return
        data += more


def send(wire, data):
    try:
        wire.sendall(data)
    except (ConnectionError, ssl.SSLError):
        pass  # It closed in the midst of a flood, which is right.


def rules(port):
    print("what breaks the rules of a connection")
    for name, codes, data in BROKEN:
        wire = connect(port)
        start = b"GET / HTTP/1.1\r\n\r\n" + b"x" * 30 if data is None else PREFACE + frame(SettingsFrame) + data
        # A flood is sent while the answers are read.
        sender = threading.Thread(target=send, args=(wire, start), daemon=True)
        sender.start()
        code = None
        for made in frames(wire):
            if isinstance(made, GoAwayFrame) and made.error_code != NO_ERROR:
                code = made.error_code
        sender.join(60)
        wire.close()
        # A connection that is closed while a flood arrives may be reset before its last words are read.
        check(name, code in codes or code is None and name.startswith("10.5"), f"GOAWAY {code}, expected {codes}")
    print("what breaks the rules of a request")
    for name, fields in MALFORMED:
        wire = connect(port)
        encoder = hpack.Encoder()
        wire.sendall(PREFACE + frame(SettingsFrame) + headers(1, fields, encoder=encoder) + headers(3, GET, encoder=encoder))
        code, status = None, None
        for made in frames(wire):
            if isinstance(made, RstStreamFrame) and made.stream_id == 1:
                code = made.error_code
            if isinstance(made, HeadersFrame):
                status = (made.stream_id, dict(hpack.Decoder().decode(made.data)).get(":status"))
                break
        wire.close()
        check(name, code == PROTOCOL_ERROR and status == (3, "200"), f"RST_STREAM {code}, then {status}")


# MARK: The proxy


class Proxy:
    def __init__(self, program, folder):
        self.folder = folder
        self.old = certificate(folder, "old")
        self.new = certificate(folder, "new")
        os.makedirs(os.path.join(folder, "tiles/3/1"))
        for y in range(8):
            with open(os.path.join(folder, f"tiles/3/1/{y}.png"), "wb") as tile:
                tile.write(b"\x89PNG\r\n\x1a\n" + bytes([y]) * (1000 + 40000 * y))
        self.file = os.path.join(folder, "tileproxy.yaml")
        self.shown = self.old
        with open(os.path.join(folder, "log"), "w") as log:
            self.configure()
            self.process = subprocess.Popen([program, "serve", "--config", self.file], stderr=log)
        self.wait("listening")
        ports = re.findall(r"127\.0\.0\.1:(\d+)( \(TLS\))?", self.log())
        self.port = int(next(port for port, tls in ports if tls))

    def configure(self):
        with open(self.file, "w") as file:
            file.write(
                f"cache: {self.folder}/cache\nlisten: [\"http://127.0.0.1:0\", \"https://127.0.0.1:0\"]\n"
                f"tls: {{certificate: {self.shown[0]}, key: {self.shown[1]}}}\n"
                f"sources: {{f: {{template: \"{self.folder}/tiles/{{z}}/{{x}}/{{y}}.png\"}}}}\n")

    def log(self):
        with open(os.path.join(self.folder, "log")) as log:
            return log.read()

    def wait(self, text, times=1):
        for _ in range(1200):
            if self.log().count(text) >= times:
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise SystemExit(f"check-http2: the log never said {text!r}:\n{self.log()}")

    def reload(self, pair, text, times=1):
        self.shown = pair
        self.configure()
        self.process.send_signal(signal.SIGHUP)
        self.wait(text, times)


def same_answers(port):
    print("the same answers as over HTTP/1.1")
    client = Client(port)
    changing = {"date", "age", "connection"}
    for method, path, fields in [
        ("GET", "/tiles/f/3/1/2.png", []), ("HEAD", "/tiles/f/3/1/2.png", []), ("GET", "/tiles/f/3/1/9.png", []),
        ("GET", "/tiles/f.json", []), ("GET", "/nowhere", []), ("GET", "/_tileproxy/health", []), ("GET", "/", []),
        ("GET", "/tiles/f/3/1/2.png", [("range", "bytes=5-9")]), ("POST", "/tiles/f/3/1/2.png", []),
        ("OPTIONS", "/tiles/f/3/1/2.png", [("origin", "https://a.example")]), ("GET", "/%2e%2e/x", []),
    ]:
        status, plain_fields, body = over_http11(port, path, method, fields)
        answer = client.get(path, method=method, fields=fields)
        expected = sorted(field for field in plain_fields if field[0] not in changing)
        got = sorted(field for field in answer["fields"] if field[0] not in changing)
        # http.client names the port in Host, and TileJSON repeats it.
        if path.endswith(".json"):
            body = body.replace(f":{port}".encode(), b"")
            expected, got = [[f for f in fields if f[0] != "content-length"] for fields in (expected, got)]
        check(
            f"{method} {path} {dict(fields) or ''}",
            (answer["status"], got, answer["body"]) == (status, expected, body), f"{answer['status']} {got}\n{status} {expected}")
    streams = [(y, client.request(f"/tiles/f/3/1/{y % 8}.png")) for y in range(64)]
    bodies = [len(client.answer(stream)["body"]) for _, stream in streams]
    check("64 requests at once", bodies == [1008 + 40000 * (y % 8) for y in range(64)], bodies)


def certificates(proxy):
    print("certificates")
    for newest in [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]:
        wire = connect(proxy.port, trust=proxy.old[0], newest=newest)
        check(f"{wire.version()} with {wire.cipher()[0]}", wire.version() == newest.name.replace("_", "."))
        wire.close()
    wire = connect(proxy.port, ("http/1.1",))
    check("HTTP/1.1 where the client wants that", wire.selected_alpn_protocol() == "http/1.1")
    wire.close()
    early = Client(proxy.port, trust=proxy.old[0])
    check("a connection before the change", early.get("/tiles/f.json")["status"] == 200)
    proxy.reload(proxy.new, "configuration read again")
    check("the new certificate after SIGHUP", Client(proxy.port, trust=proxy.new[0]).get("/tiles/f.json")["status"] == 200)
    check("the connection goes on", early.get("/tiles/f.json")["status"] == 200)
    proxy.reload((proxy.new[0], proxy.old[1]), "the configuration stays as it was")
    check("what is wrong is said", f"the key in {proxy.old[1]} does not belong" in proxy.log(), proxy.log())
    check("and the former one stays", Client(proxy.port, trust=proxy.new[0]).get("/tiles/f.json")["status"] == 200)
    proxy.reload(proxy.new, "configuration read again", 2)


def going_down(proxy):
    """By hand: h2 takes the first GOAWAY for the end of all."""
    print("SIGTERM")
    wire = connect(proxy.port)
    # A window that is closed keeps the answer under way.
    path = [(":path", "/tiles/f/3/1/7.png")]
    encoder = hpack.Encoder()
    wire.sendall(
        PREFACE + frame(SettingsFrame, settings={4: 1000}) + headers(1, without(":path") + path, encoder=encoder))
    length, goodbyes, ended = 0, [], set()
    for made in frames(wire):
        if isinstance(made, HeadersFrame) and made.stream_id == 1:
            proxy.process.send_signal(signal.SIGTERM)
        elif isinstance(made, PingFrame):
            # A request that was on its way already.
            send(wire, headers(3, GET, encoder=encoder))
            answer = PingFrame(opaque_data=made.opaque_data)
            answer.flags.add("ACK")
            send(wire, answer.serialize())
        elif isinstance(made, GoAwayFrame):
            goodbyes.append((made.error_code, made.last_stream_id))
            if len(goodbyes) == 2:
                send(wire, frame(WindowUpdateFrame, window_increment=400000))
                send(wire, frame(WindowUpdateFrame, 1, window_increment=400000))
        elif isinstance(made, DataFrame):
            length += len(made.data) if made.stream_id == 1 else 0
        if "END_STREAM" in made.flags:
            ended.add(made.stream_id)
    check("GOAWAY, and then the last stream", goodbyes == [(NO_ERROR, 2**31 - 1), (NO_ERROR, 3)], goodbyes)
    check("answers come to their ends", (length, ended) == (1008 + 280000, {1, 3}), (length, ended))
    check("then the connection is closed, and the proxy ends", proxy.process.wait(60) == 0)


def main():
    with tempfile.TemporaryDirectory() as folder:
        proxy = Proxy(sys.argv[1], folder)
        try:
            same_answers(proxy.port)
            certificates(proxy)
            rules(proxy.port)
            check("it still answers", Client(proxy.port).get("/tiles/f.json")["status"] == 200)
            going_down(proxy)
        finally:
            if proxy.process.poll() is None:
                proxy.process.kill()
                proxy.process.wait()
    if failures:
        raise SystemExit(f"check-http2: {len(failures)} failed: {', '.join(failures)}")
    print("check-http2: all passed")


main()
