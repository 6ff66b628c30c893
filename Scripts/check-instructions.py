#!/usr/bin/env python3
"""Counts instructions of bench-child under callgrind; see check-instructions.sh.

Every operation is run with N and with 2N repetitions; the difference by N is the operation's own count. What an opened
entry costs is the difference of caches of N and 2N entries.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

CHILD = os.environ["BENCH_CHILD"]
BASELINE = pathlib.Path(__file__).resolve().parent.parent / "Benchmarks" / "instructions.json"
# What is counted, how often it is done, and what one of them is called.
OPERATIONS = {
    "memory-hit": (20_000, "a read that the memory tier answers"),
    "disk-hit": (5_000, "a read that opens a file of 5 KB"),
    "put-duplicate": (4_000, "a put of bytes that are there"),
    "put-new": (1_000, "a put of 5 KB that are new, hashing included"),
    "open": (20_000, "an entry when a cache is opened from JSON"),
    "open-image": (20_000, "an entry when a cache is opened from its index"),
}
# Hashed collections in their own order every time; and what differs from user to user stays out.
ENVIRONMENT = {"SWIFT_DETERMINISTIC_HASHING": "1", "PATH": os.environ["PATH"], "LANG": "C"}


def child(*arguments, under=()):
    run = subprocess.run([*under, CHILD, *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"bench-child {arguments} ended with {run.returncode}: {run.stderr[-2000:]}")
    return run.stderr


def instructions(what, folder, count):
    """Of a whole run, on a copy of the folder, which puts would change."""
    copy = f"{folder}-{what}-{count}"
    shutil.copytree(folder, copy)
    images = list(pathlib.Path(copy, "manifest").glob("index-*.bin"))
    if what == "open-image":
        if not images:
            return None
        what = "open"
    else:
        for image in images:
            image.unlink()
    text = child(
        "count", what, copy, count, under=("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"))
    shutil.rmtree(copy)
    return int(re.search(r"Collected : (\d+)", text).group(1))


def measure(work, run):
    def operation(item):
        what, (count, _) = item
        few, many = (f"{work}/{what}-{run}-{n}" for n in (1, 2))
        opens = what.startswith("open")
        for folder, entries in ((few, count), (many, 2 * count)) if opens else ((few, 5_000),):
            child("fill", folder, entries)
        first = instructions(what, few, count)
        second = instructions(what, many if opens else few, 2 * count)
        # Without an index there is nothing to count.
        return what, None if first is None or second is None else (second - first) / count

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(pool.map(operation, OPERATIONS.items()))
    return {what: count for what, count in found.items() if count is not None}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--update", action="store_true", help="write the counts into Benchmarks/instructions.json")
    parser.add_argument("--runs", type=int, default=1, help="count so often, and say how far the runs are apart")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="instructions-") as work:
        runs = [measure(work, run) for run in range(options.runs)]
    counted = [what for what in OPERATIONS if all(what in run for run in runs)]
    counts = {what: sorted(run[what] for run in runs)[len(runs) // 2] for what in counted}
    known = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    # Counts of another processor or compiler say nothing about this code.
    swift = subprocess.run(["swift", "--version"], capture_output=True, text=True).stdout
    version = (re.search(r"Swift version (\S+)", swift) or [0, "unknown"])[1]
    here = {"machine": platform.machine(), "swift": version}
    tolerance = known.get("tolerance", 0.05)
    if options.update:
        BASELINE.write_text(json.dumps({
            **here, "tolerance": tolerance, "instructions": {what: round(count) for what, count in counts.items()},
        }, indent=2) + "\n")
    comparable = all(known.get(what) == value for what, value in here.items())
    failed = False
    print("| instructions of | counted | known | change | spread |")
    print("|---|--:|--:|--:|--:|")
    for what in counted:
        name = OPERATIONS[what][1]
        values = [run[what] for run in runs]
        spread = (max(values) - min(values)) / max(counts[what], 1)
        base = known.get("instructions", {}).get(what)
        change = counts[what] / base - 1 if base else None
        failed |= change is not None and abs(change) > tolerance
        print(
            f"| {name} | {counts[what]:,.0f} | " + (f"{base:,} | {change:+.1%}" if base else " | ")
            + f" | {spread:.2%} |")
    if options.update:
        print(f"written to {BASELINE}")
    elif not comparable:
        print(f"not compared: the known counts are of {known.get('machine')} and Swift {known.get('swift')}, "
              f"this is {here['machine']} and Swift {here['swift']}; --update writes new ones")
    elif failed:
        print(
            f"check-instructions: a count changed by more than {tolerance:.0%}. If that is meant, run "
            "Scripts/check-instructions.sh --update and say in the commit why.", file=sys.stderr)
        sys.exit(1)


main()
