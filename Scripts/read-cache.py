#!/usr/bin/env python3
"""Reads a cache by Docs/on-disk-format.md alone and prints its entries, one JSON object a line, in the order of keys.

With --all before the folder it prints one JSON object with the recency of entries, the regions and the limits too.

A second reader, in another language, shows whether that document tells the truth: Scripts/check-format.sh compares
what this prints with what tilegc prints. Everything that does not look as documented ends it with status 1. Nothing
else should be using the cache meanwhile: news at the end of the journal is not waited for.
"""
import hashlib
import json
import os
import re
import sys

MASK = (1 << 64) - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def rotate(x, n):
    return (x << n | x >> (64 - n)) & MASK


def xxh64(data):
    def mix(accumulator, lane):
        return rotate((accumulator + lane * P2) & MASK, 31) * P1 & MASK

    def word(at, size):
        return int.from_bytes(data[at:at + size], "little")

    at = 0
    if len(data) >= 32:
        lanes = [(P1 + P2) & MASK, P2, 0, -P1 & MASK]
        while at + 32 <= len(data):
            lanes = [mix(lane, word(at + 8 * i, 8)) for i, lane in enumerate(lanes)]
            at += 32
        value = sum(rotate(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18))) & MASK
        for lane in lanes:
            value = ((value ^ mix(0, lane)) * P1 + P4) & MASK
    else:
        value = P5
    value = (value + len(data)) & MASK
    while at + 8 <= len(data):
        value = (rotate(value ^ mix(0, word(at, 8)), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= len(data):
        value = (rotate(value ^ word(at, 4) * P1 & MASK, 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        value = rotate(value ^ byte * P5 & MASK, 11) * P1 & MASK
    value = (value ^ value >> 33) * P2 & MASK
    value = (value ^ value >> 29) * P3 & MASK
    return value ^ value >> 32


# The member that tells what a record is; the first one that it has counts.
KINDS = ("key", "set", "gone", "drop", "uses", "expire", "region", "regionGone", "limits", "boot", "blob", "rotate")


class Bad(Exception):
    """Something is not as the document says."""


TAIL = re.compile(rb',"c":"([0-9a-f]{8})"')


def checked(line, where, end=rb"\}\Z"):
    """The members of a line, after its checksum was found right."""
    tail = re.search(TAIL.pattern + end, line)
    if not tail:
        raise Bad(f"{where}: no checksum at the end")
    body = line[:tail.start()]
    if xxh64(body) & 0xFFFFFFFF != int(tail[1], 16):
        raise Bad(f"{where}: wrong checksum")
    return json.loads(body + b"}"), tail[1].decode()


class Cache:
    def __init__(self, folder):
        self.folder = folder
        self.entries, self.regions, self.sets = {}, {}, {}
        self.limits = None
        with open(self.path("tilecache.json"), "rb") as file:
            about = json.load(file)
        if about["format"] != 1 or not re.fullmatch("[0-9a-f]{32}", about["salt"]):
            raise Bad("tilecache.json: not format 1")

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def read(self):
        names = os.listdir(self.path("manifest"))
        newest = max(int(m[1]) for m in map(re.compile(r"checkpoint-(\d+)\.json").fullmatch, names) if m)
        self.read_checkpoint(newest)
        generation = newest
        while generation is not None:
            generation = self.read_journal(generation)

    def read_checkpoint(self, generation):
        name = f"checkpoint-{generation}.json"
        with open(self.path("manifest", name), "rb") as file:
            text = file.read()
        if len(json.loads(text)["records"]) == 0:
            raise Bad(f"{name}: no end record")
        header, *records, last = text.removesuffix(b"\n").split(b"\n")
        about, _ = checked(header, f"{name}:1", rb',"records":\[\Z')
        if (about["checkpoint"], about["format"], last) != (generation, 1, b"]}"):
            raise Bad(f"{name}: bad header or end")
        for number, line in enumerate(records[:-1]):
            if not line.endswith(b","):
                raise Bad(f"{name}:{number + 2}: no comma")
            self.apply(checked(line[:-1], f"{name}:{number + 2}")[0], name)
        if checked(records[-1], f"{name}: end")[0] != {"end": len(records) - 1}:
            raise Bad(f"{name}: wrong number of records")

    def read_journal(self, generation):
        """Returns the generation that a rotate record leads to."""
        name = f"journal-{generation}.jsonl"
        with open(self.path("manifest", name), "rb") as file:
            lines = file.read().split(b"\n")[:-1]
        header, _ = checked(lines[0], f"{name}:1")
        if sorted(header) != ["after", "format", "journal", "previous"] or header["journal"] != generation:
            raise Bad(f"{name}: bad header")
        for number, line in enumerate(lines[1:]):
            record, _ = checked(line, f"{name}:{number + 2}")
            if "rotate" in record:
                if number + 2 < len(lines):
                    raise Bad(f"{name}: lines after the rotate record")
                return record["rotate"]
            self.apply(record, f"{name}:{number + 2}")
        return None

    def apply(self, record, where):
        kind = next((kind for kind in KINDS if kind in record), None)
        if kind == "key":
            if record["set"] not in self.sets:
                raise Bad(f"{where}: set {record['set']} is not defined")
            self.entries[record["key"]] = record
        elif kind == "set":
            self.sets[record["set"]] = record
        elif kind == "gone":
            for key in record["gone"]:
                self.entries.pop(key, None)
        elif kind == "drop":
            self.entries = {k: e for k, e in self.entries.items() if e.get("blob") != record["drop"]}
        elif kind == "uses":
            for number, key in enumerate(record["uses"]):
                if key in self.entries:
                    self.entries[key].update(use=record["use"] + number, used=record["at"])
        elif kind == "expire":
            for key in record["expire"]:
                if key in self.entries:
                    self.entries[key]["exp"] = record["exp"]
        elif kind == "region":
            self.regions[record["region"]] = record
        elif kind == "regionGone":
            self.regions.pop(record["regionGone"], None)
        elif kind == "limits":
            self.limits = record["limits"]
        elif kind is None:
            raise Bad(f"{where}: unknown record {record}")

    def check_blobs(self):
        """Every blob that is named is there, under its right name, and no other is."""
        named = {entry["blob"]: entry["size"] for entry in self.entries.values() if "blob" in entry}
        found = {name for _, _, files in os.walk(self.path("objects")) for name in files}
        if found != named.keys():
            raise Bad(f"objects: {len(found - named.keys())} too many, {len(named.keys() - found)} too few")
        for blob, size in named.items():
            with open(self.path("objects", blob[:2], blob), "rb") as file:
                content = file.read()
            if len(content) != size or hashlib.sha256(content).hexdigest() != blob:
                raise Bad(f"objects: {blob} has other bytes")


def main():
    cache = Cache(sys.argv[-1])
    cache.read()
    cache.check_blobs()
    everything = sys.argv[1:-1] == ["--all"]
    entries = []
    for key, entry in sorted(cache.entries.items()):
        fields = {
            "key": key, "blob": entry.get("blob"), "size": entry.get("size", 0),
            "status": cache.sets[entry["set"]]["status"], "etag": entry.get("etag"), "expires": entry["exp"],
            "lastUsed": entry.get("used", entry["at"]),
        }
        if everything:
            entries.append(fields | {"use": entry["use"]})
        else:
            print(json.dumps(fields, separators=(",", ":")))
    if everything:
        regions = [cache.regions[name] for name in sorted(cache.regions)]
        print(json.dumps({"entries": entries, "regions": regions, "limits": cache.limits}))


if __name__ == "__main__":
    try:
        main()
    except Bad as problem:
        sys.exit(f"read-cache: {problem}")
