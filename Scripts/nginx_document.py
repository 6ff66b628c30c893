"""The nginx configuration that Docs/operations.md tells people to write."""
import pathlib
import re

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "Docs" / "operations.md"


def block(mark):
    """The one nginx block of the document that has a text in it."""
    found = [block for block in re.findall(r"^```nginx\n(.*?)^```", DOCUMENT.read_text(), re.S | re.M) if mark in block]
    if len(found) != 1:
        raise SystemExit(f"expected one nginx block with '{mark}' in {DOCUMENT}, not {len(found)}")
    return found[0]


def replace(text, places):
    """A block with a run's own places in place of the document's, each of which it must have once."""
    for old, new in places:
        if text.count(old) != 1:
            raise SystemExit(f"expected '{old}' once in an nginx block of {DOCUMENT}")
        text = text.replace(old, new)
    return text
