#!/usr/bin/env python3
"""Reads a published set by Docs/set-format.md alone and prints its tiles, one JSON object a line, in the order of the list.

    read-set.py FOLDER [--deltas]

A second reader, in another language, shows whether that document tells the truth: Scripts/check-sets.sh compares what this prints
with what tilegc has published. Everything that is not as documented ends it with status 1. With --deltas it also looks whether
each delta, applied to the former root that it leads from, gives the present one; that root has to be there still.
"""
import gzip
import hashlib
import json
import os
import re
import sys

KEY = re.compile(r"^(0|[1-9]\d?)/(0|[1-9]\d*)/(0|[1-9]\d*)(?:@([2-8])x)?(?:\.([a-z0-9]{1,12}))?$")
HEX = re.compile(r"^[0-9a-f]{64}$")
TYPES = {
    None, "application/geo+json", "application/json", "application/octet-stream", "application/vnd.mapbox-vector-tile",
    "application/x-protobuf", "image/avif", "image/gif", "image/jpeg", "image/png", "image/svg+xml", "image/webp", "text/plain",
}
CODINGS = {None, "br", "deflate", "gzip", "zstd"}


def need(condition, what):
    if not condition:
        sys.exit("read-set: " + what)


def canonical(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


def interleave(x, y, zoom):
    return sum((x >> bit & 1) << 2 * bit | (y >> bit & 1) << 2 * bit + 1 for bit in range(zoom))


def parse(key):
    match = KEY.match(key)
    need(match, f"key {key!r}")
    z, x, y = (int(part) for part in match.group(1, 2, 3))
    need(z <= 28 and x < 1 << z and y < 1 << z, f"key {key!r} is out of range")
    return z, interleave(x, y, z), int(match.group(4) or 1), match.group(5) or ""


def spell(place):
    z, quadkey, scale, form = place
    x = sum((quadkey >> 2 * bit & 1) << bit for bit in range(z))
    y = sum((quadkey >> 2 * bit + 1 & 1) << bit for bit in range(z))
    return f"{z}/{x}/{y}" + (f"@{scale}x" if scale > 1 else "") + ("." + form if form else "")


class Set:
    def __init__(self, folder):
        self.folder = folder
        with open(os.path.join(folder, "set.json"), "rb") as file:
            data = file.read()
        need(len(data) <= 1 << 20, "set.json is too long")
        self.document = json.loads(data)
        need(self.document["format"] == "tile-set" and self.document["version"] == 1, "no set of version 1")

    def path(self, digest):
        need(HEX.match(digest), f"digest {digest!r}")
        return os.path.join(self.folder, "objects", digest[:2], digest)

    def list(self, digest, length):
        with open(self.path(digest) + ".gz", "rb") as file:
            stored = file.read()
        need(len(stored) <= length + length // 512 + 1024, f"{digest}.gz is too long")
        data = gzip.decompress(stored)
        need(len(data) == length, f"{digest} has another length")
        need(hashlib.sha256(data).hexdigest() == digest, f"{digest} has other bytes")
        value = json.loads(data)
        need(canonical(value) == data, f"{digest} is not canonical")
        return value


def expand(runs, kinds):
    """The tiles of runs: {place: (digest, size, kind)}, in order."""
    tiles, last = {}, None
    for key, count, digest, size, kind in runs:
        need(HEX.match(digest) and 1 <= size <= 32 << 20 and count >= 1, f"the run of {key}")
        z, quadkey, scale, form = parse(key)
        need(quadkey + count <= 4**z, f"the run of {key} is too long")
        for step in range(count):
            place = (z, quadkey + step, scale, form)
            need(last is None or place > last, f"{spell(place)} is not in its place")
            last = place
            tiles[place] = (digest, size, tuple(kinds[kind]))
    return tiles


def written(tiles):
    """The members that a list of tiles is written as."""
    kinds, runs, last = [], [], None
    for place, (digest, size, kind) in tiles.items():
        if kind not in kinds:
            kinds.append(kind)
        number = kinds.index(kind)
        follows = last and place == (last[0], last[1] + 1, last[2], last[3])
        if follows and runs[-1][2:] == [digest, size, number]:
            runs[-1][1] += 1
        else:
            runs.append([spell(place), 1, digest, size, number])
        last = place
    return {"kinds": [list(kind) for kind in kinds], "runs": runs}


def members(value, most):
    need(len(value["kinds"]) <= 64, "too many kinds")
    for kind, coding in value["kinds"]:
        need(kind in TYPES and coding in CODINGS, f"kind {kind}, {coding}")
    tiles = expand(value["runs"], value["kinds"])
    need(0 < len(tiles) <= most or "from" in value, "too many tiles, or none")
    need(written(tiles) == {"kinds": value["kinds"], "runs": value["runs"]}, "runs are not as long as they can be")
    return tiles


def begins(place, before, count):
    if count >= 4096:
        return True
    return place[:2] != before[:2] and ((place[0] << 56) + place[1]) * 0x9E3779B97F4A7C15 % 2**64 < 2**54


def cut(tiles):
    """The root of a list of tiles."""
    chunks, chunk, before = [], {}, None
    for place, tile in tiles.items():
        if chunk and begins(place, before, len(chunk)):
            chunks.append(chunk)
            chunk = {}
        chunk[place] = tile
        before = place
    if chunk:
        chunks.append(chunk)
    rows = []
    for chunk in chunks:
        data = canonical(written(chunk))
        rows.append([hashlib.sha256(data).hexdigest(), len(chunk), len(data)])
    return hashlib.sha256(canonical({"chunks": rows})).hexdigest()


def tiles_of(set_, root, length):
    rows = set_.list(root, length)["chunks"]
    need(len(rows) <= 131072, "too many chunks")
    tiles = {}
    for digest, count, size in rows:
        need(1 <= count <= 4096 and 1 <= size <= 4 << 20, f"chunk {digest}")
        chunk = members(set_.list(digest, size), 4096)
        need(len(chunk) == count, f"chunk {digest} has {len(chunk)} tiles")
        need(not tiles or next(iter(chunk)) > next(reversed(tiles)), f"chunk {digest} is not in its place")
        tiles.update(chunk)
    need(cut(tiles) == root, "chunks are not cut by the rule")
    return tiles


def main():
    set_ = Set(sys.argv[1])
    document = set_.document
    tiles = tiles_of(set_, document["root"], document["rootLength"])
    need(len(tiles) == document["tiles"], "tiles is wrong")
    sizes = {}
    for digest, size, _ in tiles.values():
        need(sizes.setdefault(digest, size) == size, f"{digest} has two sizes")
    need(len(sizes) == document["blobs"] and sum(sizes.values()) == document["bytes"], "blobs or bytes is wrong")
    for digest, size in sizes.items():
        with open(set_.path(digest), "rb") as file:
            data = file.read()
        need(len(data) == size and hashlib.sha256(data).hexdigest() == digest, f"the bytes of {digest}")
    need(len(document["deltas"]) <= 8 and len(document["kept"]) <= 256, "too many deltas or kept roots")
    if "--deltas" in sys.argv[2:]:
        kept = {root: length for root, length, _ in document["kept"]}
        for former, digest, length in document["deltas"]:
            delta = set_.list(digest, length)
            need(delta["from"] == former and delta["to"] == document["root"], f"delta {digest} leads elsewhere")
            need(delta["removed"] == [spell(place) for place in sorted(map(parse, delta["removed"]))], "removed keys out of order")
            made = tiles_of(set_, former, kept[former])
            for key in delta["removed"]:
                made.pop(parse(key), None)
            made.update(members(delta, 131072))
            need(dict(sorted(made.items())) == tiles, f"delta {digest} does not give the root")
            need(cut(dict(sorted(made.items()))) == document["root"], f"delta {digest}: another root")
        print(f"read-set: {len(document['deltas'])} deltas", file=sys.stderr)
    for place, (digest, size, (kind, coding)) in tiles.items():
        print(json.dumps({"key": spell(place), "blob": digest, "size": size, "type": kind, "coding": coding}))


main()
