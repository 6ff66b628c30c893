#!/usr/bin/env python3
"""Writes ICU's data without what only other languages and old encodings need, as an object that the linker takes in place of Foundation's.

    trim-icu.py ARCHIVE OBJECT    # ARCHIVE is lib_FoundationICU.a of the Swift toolchain

Foundation has 34 MB of ICU's data, and every program in which it is linked gets all of it. ICU works without the data of a language: it takes
those of the root then. What stays is the root, English, and everything that is of no language: 4.5 MB.
"""
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

MEMBER = "icu_packaged_data.cpp.o"
SYMBOL = re.compile(r"^[0-9a-f]+ ([0-9a-f]+) R (icudt\d+_dat)$", re.M)
LANGUAGE = re.compile(r"[a-z]{2,3}(_\w+)?")
ENGLISH = {"en", "en_001", "en_US", "en_US_POSIX"}
ALIGNMENT = 16


def is_kept(name):
    """Whether an item is; its name is such as icudt76l/curr/de.res."""
    path = name.partition("/")[2]
    if path.endswith((".cnv", ".dict")) or path.startswith("translit/"):
        return False
    stem = path.rpartition("/")[2].removesuffix(".res")
    return not path.endswith(".res") or not LANGUAGE.fullmatch(stem) or stem in ENGLISH


def items(package):
    """The package's header, and its items by name: https://unicode-org.github.io/icu/userguide/icu_data/."""
    if package[2:4] != b"\xda\x27" or package[12:16] != b"CmnD":
        sys.exit("trim-icu: the toolchain's data is no ICU package")
    (header,) = struct.unpack_from("<H", package)
    (count,) = struct.unpack_from("<I", package, header)
    entries = [struct.unpack_from("<II", package, header + 4 + 8 * i) for i in range(count)] + [(0, len(package) - header)]
    found = {}
    for (name, start), (_, end) in zip(entries, entries[1:]):
        text = package[header + name : package.index(b"\0", header + name)].decode()
        found[text] = package[header + start : header + end]
    return package[:header], found


def packaged(header, kept):
    """A package of these items, which have to be in the order of their names."""
    names = b"".join(name.encode() + b"\0" for name in kept)
    position = 4 + 8 * len(kept)
    name_position, position = position, position + len(names)
    gap = -position % ALIGNMENT
    position += gap
    table, bodies = struct.pack("<I", len(kept)), []
    for name, body in kept.items():
        table += struct.pack("<II", name_position, position)
        bodies.append(body + bytes(-len(body) % ALIGNMENT))
        name_position += len(name) + 1
        position += len(bodies[-1])
    return header + table + names + bytes(gap) + b"".join(bodies)


def main():
    archive, target = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / MEMBER).write_bytes(subprocess.run(["ar", "p", archive, MEMBER], check=True, capture_output=True).stdout)
        listed = subprocess.run(["nm", "--print-size", work / MEMBER], check=True, capture_output=True, text=True).stdout
        symbol = SYMBOL.search(listed)
        if not symbol:
            sys.exit(f"trim-icu: {archive} has no ICU data where it was")
        subprocess.run(["objcopy", "--output-target=binary", "--only-section=.rodata*", work / MEMBER, work / "all"], check=True)
        header, found = items((work / "all").read_bytes()[: int(symbol[1], 16)])
        kept = {name: body for name, body in found.items() if is_kept(name)}
        (work / "kept").write_bytes(packaged(header, kept))
        (work / "data.s").write_text(
            f"""
            .section .rodata
            .globl {symbol[2]}
            .type {symbol[2]}, @object
            .balign {ALIGNMENT}
            {symbol[2]}:
            .incbin "kept"
            .size {symbol[2]}, . - {symbol[2]}
            .section .note.GNU-stack, "", %progbits
            """
        )
        subprocess.run(["as", "data.s", "-o", pathlib.Path(target).absolute()], check=True, cwd=work)
        print(f"trim-icu: {len(kept)} of {len(found)} items stay, {(work / 'kept').stat().st_size} bytes")


main()
