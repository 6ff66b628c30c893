"""Vector tiles for the checks of the page: a reader to compare with, and a writer of tiles good and bad."""
import gzip
import random
import struct


def varint(at, data):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def fields(data):
    """The fields of a message: numbers, and the bytes of all else."""
    at = 0
    while at < len(data):
        tag, at = varint(at, data)
        if tag & 7 == 0:
            value, at = varint(at, data)
        else:
            size, at = varint(at, data) if tag & 7 == 2 else ({1: 8, 5: 4}[tag & 7], at)
            value, at = data[at:at + size], at + size
        yield tag >> 3, value


def numbers(data):
    at, found = 0, []
    while at < len(data):
        value, at = varint(at, data)
        found.append(value)
    return found


def geometry(data):
    """The points of a geometry, as [x, y]."""
    at, x, y, points, found = 0, 0, 0, numbers(data), []
    while at < len(points):
        kind, count = points[at] & 7, points[at] >> 3
        at += 1
        for _ in range(count if kind != 7 else 0):
            x += points[at] >> 1 ^ -(points[at] & 1)
            y += points[at + 1] >> 1 ^ -(points[at + 1] & 1)
            at += 2
            found.append([x, y])
    return found


def summary(data):
    """Of each layer: name, extent, number of features and points, sums of their coordinates, and what the properties say."""
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    found = []
    for number, layer in fields(data):
        if number != 3:
            continue
        name, extent, keys, values, points, pairs, features = "", 4096, [], [], [], 0, []
        for number, value in fields(layer):
            if number == 1:
                name = value.decode()
            elif number == 2:
                features.append(dict(fields(value)))
            elif number == 3:
                keys.append(value.decode())
            elif number == 4:
                values += [part.decode() if number == 1 else "?" for number, part in fields(value)]
            elif number == 5:
                extent = value
        for feature in features:
            points += geometry(feature.get(4, b""))
            tags = numbers(feature.get(2, b""))
            pairs += sum(len(keys[tags[i]]) + len(values[tags[i + 1]]) for i in range(0, len(tags), 2))
        found.append([name, extent, len(features), len(points), sum(p[0] for p in points), sum(p[1] for p in points), pairs])
    return found


# --- writing

def number(value):
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes(found + bytes([value]))


def field(place, value):
    if isinstance(value, int):
        return number(place << 3) + number(value)
    value = value.encode() if isinstance(value, str) else value
    return number(place << 3 | 2) + number(len(value)) + value


def commands(*values):
    return b"".join(number(value) for value in values)


def delta(value):
    return value << 1 if value >= 0 else (-value << 1) - 1


def shape(points, kind):
    """A point, a line or a ring as a geometry."""
    found, (x, y) = [], (0, 0)
    for i, (px, py) in enumerate(points):
        if i < 2:
            found.append(9 if i == 0 else (len(points) - 1) << 3 | 2)
        found += [delta(px - x), delta(py - y)]
        x, y = px, py
    return commands(*found, *([15] if kind == 3 else []))


def feature(kind, data, tags=(), identifier=None):
    return ((b"" if identifier is None else field(1, identifier)) + (field(2, commands(*tags)) if tags else b"")
            + field(3, kind) + field(4, data))


def layer(name, features, keys=(), values=(), extent=4096, version=2):
    """A layer; values are written messages, and `name` may be missing."""
    return field(3, (b"" if name is None else field(1, name)) + b"".join(field(2, each) for each in features)
                 + b"".join(field(3, key) for key in keys) + b"".join(field(4, value) for value in values)
                 + field(5, extent) + field(15, version))


# Text that would be a script if it were taken for HTML.
SCRIPT = "<img src=x onerror='window.taken = 1'><script>window.taken = 1</script>"

# One value of each kind, and what the page shows of it.
VALUES = [
    (field(1, SCRIPT), SCRIPT), (b"\x15" + struct.pack("<f", 1.5), "1.5"), (b"\x19" + struct.pack("<d", -0.1), "-0.1"),
    (field(4, 2 ** 64 - 7), "-7"), (field(5, 2 ** 64 - 1), "18446744073709551615"), (field(6, 2 ** 64 - 1), "-9223372036854775808"),
    (field(7, 1), "true"), (field(7, 0), "false"), (b"", "–"),
]
SQUARE = [(256, 256), (3840, 256), (3840, 3840), (256, 3840)]


def told():
    """A tile with a polygon, a line and a point in its middle, ids up to the largest, and values of all kinds."""
    keys = [f"key {i}" for i in range(len(VALUES) - 1)] + [SCRIPT]
    tags = [part for i in range(len(VALUES)) for part in (i, i)]
    return (layer("areas", [feature(3, shape(SQUARE, 3), identifier=7)], extent=4096)
            + layer(SCRIPT, [feature(1, shape([(1024, 1024)], 1), tags, 2 ** 64 - 1)], keys, [v for v, _ in VALUES], 2048)
            + layer("lines", [feature(2, shape([(0, 4096), (4096, 0)], 2))]))


def bad():
    """Tiles that nobody should write, and what the page says of them."""
    def one(data, kind=2):
        return layer("bad", [feature(kind, data)])

    return {
        "ends in a tag": (b"\xff", "ends within a number"),
        "ends in a length": (b"\x1a\xff", "ends within a number"),
        "a number without end": (b"\x1a" + b"\xff" * 12, "more than ten bytes"),
        "a layer larger than the tile": (b"\x1a\xff\xff\xff\xff\x0f", "ends within a field"),
        "a group": (b"\x0b\x0c", "unknown type 3"),
        "no protobuf": (b"\x07\x06tile", "unknown type 7"),
        "no name": (layer(None, []), "no name"),
        "another version": (layer("bad", [], version=3), "unknown version 3"),
        "no extent": (layer("bad", [], extent=0), "no extent"),
        "half a billion points": (one(commands(9, 2, 2, 0xFFFFFFFA, 2, 2)), "announces more points"),
        "half a billion starts": (one(commands(0xFFFFFFF9, 2, 2), 1), "announces more points"),
        "half a point": (one(commands(9, 2)), "announces more points"),
        "no start": (one(commands(10, 2, 2)), "no start"),
        "closed without a start": (one(commands(15), 3), "not open"),
        "closed twice": (one(commands(9, 2, 2, 10, 4, 4, 15, 15), 3), "not open"),
        "closed half a billion times": (one(commands(9, 2, 2, 10, 4, 4, 0xFFFFFFFF), 3), "not open"),
        "an unknown command": (one(commands(9, 2, 2, 13)), "unknown command 5"),
        "beyond all maps": (one(commands(9, 0xFFFFFFFE, 2, 18, 0xFFFFFFFE, 2, 2, 2)), "not within 32 bits"),
        "two geometries": (layer("bad", [feature(1, commands(9, 2, 2)) + field(4, commands(9, 2, 2))]), "two geometry"),
        "many layers": (layer("bad", []) * 501, "more than 500 layers"),
        "many features": (layer("bad", [b""] * 262145), "more than 262144 items"),
        "many keys": (layer("bad", [], [""] * 262145), "more than 262144 items"),
    }


def strange():
    """Tiles that can be read, though there is little to see of them: each within its bounds."""
    zigzag = commands(9, 0, 0, 1000000 << 3 | 2) + commands(8192, 8192, 8191, 8191) * 500000
    return {
        "nothing": (b"", ""),
        "fields of a later version": (field(9, "x") + b"\x59" + b"x" * 8 + b"\x5d" + b"x" * 4 + layer("later", []), ""),
        "a type of a later version": (layer("later", [feature(9, b"\xff")]), ""),
        "points where a line should be": (layer("odd", [feature(2, shape([(9, 9)], 1)), feature(3, b"")]), ""),
        "an extent of one": (layer("odd", [feature(3, shape([(0, 0), (1, 0), (1, 1)], 3))], extent=1), ""),
        "far away": (layer("odd", [feature(2, shape([(-2 ** 30, 5), (2 ** 30, 9)], 2))], extent=2 ** 32 - 1), ""),
        "a million long lines": (layer("odd", [feature(2, zigzag)]), "drawn in part"),
        "a thousand layers' worth of names": (b"".join(layer(f"name {i} " + "x" * 300, []) for i in range(300)), ""),
    }


def damaged(data, seed, count):
    """Copies of a tile with some bytes changed, taken out or put in."""
    draw = random.Random(seed)
    for _ in range(count):
        copy = bytearray(data)
        for _ in range(draw.randint(1, 6)):
            at = draw.randrange(len(copy))
            copy[at:at + draw.randint(0, 4)] = bytes(draw.choice([0, 1, 127, 128, 255, draw.randrange(256)])
                                                     for _ in range(draw.randint(0, 4)))
        yield bytes(copy)
