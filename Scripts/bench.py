#!/usr/bin/env python3
"""Runs all benchmarks, prints one table, writes bench.json and draws the growth curves.

    bench.py BIN [FOLDER] [--quick] [--ten-million] [--only PART,…] [--work DIR] [--json FILE] [--picture FILE]
             [--tileproxy PROGRAM] [--mapproxy VENV | --install-mapproxy] [--merge] [--from FILE] [--update-docs]

BIN is the folder of tile-bench. Parts: rows (the store beside raw files, SQLite and LMDB), growth (10 k to 1 M entries, with
--ten-million 10 M too), fan-out (folders of files without the store) and proxy (tileproxy beside nginx and MapProxy, where
nginx and wrk are installed). FOLDER is a z/x/y folder of tiles of your own. --merge keeps what is in the JSON file of parts
that are not run now; --from prints and draws what an earlier run wrote. --update-docs puts tables and picture into Docs/.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from bench_picture import picture  # noqa: E402
from bench_table import fan_out_table, growth_table, rows_table  # noqa: E402

PARTS = ["rows", "growth", "proxy", "fan-out"]


def machine():
    """What the figures were seen on."""
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text()) if sys.platform == "linux" else None
    swift = subprocess.run(["swift", "--version"], capture_output=True, text=True).stdout if shutil.which("swift") else ""
    return {
        "processor": model.group(1) if model else platform.processor(), "processors": os.cpu_count(),
        "system": platform.platform(), "swift": (re.search(r"Swift version (\S+)", swift) or [0, "?"])[1],
        "load": round(os.getloadavg()[0], 1), "date": datetime.date.today().isoformat()}


class Suite:
    def __init__(self, options):
        self.options = options
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="bench-", dir=options.work))
        known = pathlib.Path(options.json)
        kept = json.loads(known.read_text()) if options.merge and known.exists() else {}
        self.result = {**kept, "machine": machine(), "quick": options.quick}
        self.failures = []

    def run(self):
        wanted = self.options.only.split(",") if self.options.only else PARTS[:3]
        for part in wanted:
            print(f"bench: {part} …", file=sys.stderr, flush=True)
            getattr(self, part.replace("-", "_"))()
            # After every part: a run that is interrupted has not been for nothing.
            pathlib.Path(self.options.json).write_text(json.dumps(self.result, indent=1, sort_keys=True) + "\n")
        shutil.rmtree(self.work, ignore_errors=True)
        return self.result

    def tile_bench(self, name, *arguments):
        """Runs a command of tile-bench; the figures that it wrote, all of them or those until it failed."""
        file = self.work / f"{name}.json"
        command = [
            f"{self.options.bin}/tile-bench", *arguments, "--work", str(self.work), "--json", str(file)]
        # Its own table is a part of ours.
        ended = subprocess.run(command, stdout=subprocess.DEVNULL)
        if ended.returncode:
            self.failures.append(f"{name}: {' '.join(command)} ended with {ended.returncode}")
        self.result[name] = json.loads(file.read_text()) if file.exists() else []

    def rows(self):
        folder = [self.options.folder] if self.options.folder else []
        self.tile_bench("rows", "run", *folder, *(["--quick"] if self.options.quick else []))

    def growth(self):
        sizes = "10k,100k" if self.options.quick else "10k,100k,1M"
        if self.options.ten_million:
            sizes = "10k,100k,1M,10M"
        self.tile_bench(
            "growth", "growth", "--sizes", sizes, *(["--quick"] if self.options.quick else []))

    def fan_out(self):
        self.tile_bench("fan-out", "fan-out", "--files", "20k,200k" if self.options.quick else "20k,200k,2M")

    def proxy(self):
        missing = [tool for tool in ("nginx", "wrk") if not shutil.which(tool)]
        program = self.options.tileproxy
        if missing or not program:
            print(f"bench: the proxy is left out: no {', '.join(missing) or 'tileproxy'}", file=sys.stderr)
            self.result["proxy"] = []
            return
        file = self.work / "proxy.json"
        command = [
            sys.executable, str(HERE / "bench-proxy.py"), program, "--json", str(file), "--work", str(self.work)]
        command += ["--quick", "--only", "warm"] if self.options.quick else ["--rounds", "5", "--seconds", "3"]
        if self.options.mapproxy:
            command += ["--mapproxy", self.options.mapproxy]
        elif self.options.install_mapproxy:
            command.append("--install-mapproxy")
        ended = subprocess.run(command, stdout=sys.stderr)
        if ended.returncode:
            self.failures.append(f"proxy: {' '.join(command)} ended with {ended.returncode}")
        self.result["proxy"] = json.loads(file.read_text()) if file.exists() else []


def tables(result):
    """By the names of their places in Docs/benchmarks.md; empty where nothing was measured."""
    return {"rows": rows_table(result), "growth": growth_table(result), "fan-out": fan_out_table(result)}


def origin(result):
    seen = result["machine"]
    return (f"{seen['processors']} processors ({seen['processor']}), {seen['system']}, Swift {seen['swift']}, load "
            f"{seen['load']} at the start, {seen['date']}" + ("; a quick look" if result["quick"] else ""))


def update_docs(result):
    docs = HERE.parent / "Docs" / "benchmarks.md"
    text = docs.read_text()
    for name, lines in tables(result).items():
        if lines:
            place = re.compile(rf"(<!-- bench: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
            content = "\n".join(lines) + f"\n\nSeen on {origin(result)}.\n"
            text, found = place.subn(lambda match: match[1] + content + match[2], text)
            if not found:
                raise SystemExit(f"bench: {docs} has no place for {name}")
    docs.write_text(text)
    if result.get("growth"):
        (docs.parent / "growth.svg").write_text(picture(result["growth"]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--ten-million", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--work", default=tempfile.gettempdir())
    parser.add_argument("--json")
    parser.add_argument("--picture")
    parser.add_argument("--tileproxy")
    parser.add_argument("--mapproxy", metavar="VENV")
    parser.add_argument("--install-mapproxy", action="store_true")
    parser.add_argument("--merge", action="store_true")
    parser.add_argument("--from", dest="source")
    parser.add_argument("--update-docs", action="store_true")
    options = parser.parse_args()
    unknown = [part for part in options.only.split(",") if part and part not in PARTS]
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    options.json = options.json or str(pathlib.Path(options.work) / "bench.json")
    failures = []
    if options.source:
        result = json.loads(pathlib.Path(options.source).read_text())
    else:
        suite = Suite(options)
        result = suite.run()
        failures = suite.failures
    for lines in tables(result).values():
        if lines:
            print("\n".join(lines) + "\n")
    print(origin(result))
    if options.picture and result.get("growth"):
        pathlib.Path(options.picture).write_text(picture(result["growth"]))
        print(f"picture: {options.picture}")
    if options.update_docs:
        update_docs(result)
    if not options.source:
        print(f"figures: {options.json}")
    for failure in failures:
        print(f"not measured in full: {failure}", file=sys.stderr)
    sys.exit(1 if failures else 0)


main()
