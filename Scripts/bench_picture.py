"""The growth curves as a picture: charts over the number of entries, readable on light and on dark pages."""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 500, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 310, 58, 246

STYLE = """
svg { --ink: #1f2328; --soft: #59636e; --grid: #d1d9e0; --page: #ffffff;
  --floor: #818b98; --a: #0969da; --b: #bc4c00; --c: #1a7f37; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #f0f6fc; --soft: #9198a1; --grid: #3d444d; --page: #0d1117;
    --floor: #9198a1; --a: #4493f8; --b: #f0883e; --c: #3fb950; }
}
text { fill: var(--soft); }
.title { fill: var(--ink); font-size: 14px; font-weight: 600; }
.grid { stroke: var(--grid); stroke-width: 1; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
"""


class Series:
    def __init__(self, figures, name, row, scale=1.0, value="ours", least=0):
        self.name, self.is_floor = name, value == "floor"
        self.points = sorted(
            (figure["entries"], figure[value] * scale) for figure in figures
            if figure["row"] == row and figure.get(value) and figure["entries"] >= least)


def picture(figures):
    """The whole picture, made of the figures that `tile-bench growth` wrote."""
    def series(*arguments, **named):
        return Series(figures, *arguments, **named)

    charts = [
        ("Hits on the same 10,000 hot tiles", "µs a hit", True, [
            series("disk hit", "growth-hit-disk"),
            series("open + read, raw", "growth-hit-disk", value="floor"),
            series("memory hit", "growth-hit-memory")]),
        ("Puts, one by one", "µs a put", True, [
            series("new blob of 5 KB", "growth-put-new"),
            series("stage + rename, raw", "growth-put-new", value="floor"),
            series("duplicate", "growth-put-duplicate")]),
        ("Opening in a new process", "seconds", True, [
            series("from JSON", "growth-open-json"),
            series("from the index", "growth-open-image"),
            series("open + all figures", "growth-stats")]),
        ("Bytes an entry", "bytes", False, [
            series("checkpoint on disk", "growth-checkpoint"),
            # In a small cache the rest of the process would hide the store.
            series("resident, process too", "growth-open-json-resident", least=100_000)]),
    ]
    charts = [(*head, [line for line in lines if line.points]) for *head, lines in charts]
    charts = [chart for chart in charts if chart[3]]
    # One axis of sizes for all.
    sizes = sorted({size for _, _, _, lines in charts for line in lines for size, _ in line.points})
    rows = (len(charts) + 1) // 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {rows * HEIGHT}" width="{2 * WIDTH}" role="img" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="12">',
        "<title>How the store behaves as the number of entries grows</title>", f"<style>{STYLE}</style>",
        '<rect width="100%" height="100%" fill="var(--page)"/>']
    for index, (title, unit, logarithmic, lines) in enumerate(charts):
        parts.append(f'<g transform="translate({index % 2 * WIDTH} {index // 2 * HEIGHT})">')
        parts += chart(title, unit, logarithmic, lines, sizes)
        parts.append("</g>")
    return "\n".join(parts) + "\n</svg>\n"


def chart(title, unit, logarithmic, lines, sizes):
    values = [value for line in lines for _, value in line.points]
    low, high, ticks = axis(min(values), max(values), logarithmic)

    def x(size):
        if sizes[-1] == sizes[0]:
            return (LEFT + RIGHT) / 2
        return LEFT + (RIGHT - LEFT) * math.log(size / sizes[0]) / math.log(sizes[-1] / sizes[0])

    def y(value):
        share = math.log(value / low) / math.log(high / low) if logarithmic else (value - low) / (high - low)
        return BOTTOM - (BOTTOM - TOP) * share

    yield f'<text class="title" x="16" y="24">{escape(title)}</text>'
    yield f'<text x="16" y="43">{escape(unit)}{", logarithmic" if logarithmic else ""}</text>'
    for tick in ticks:
        yield f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
        yield f'<text text-anchor="end" x="{LEFT - 8}" y="{y(tick) + 4:.1f}">{short(tick)}</text>'
    for size in sizes:
        yield f'<line class="grid" x1="{x(size):.1f}" x2="{x(size):.1f}" y1="{TOP}" y2="{BOTTOM}"/>'
        yield f'<text text-anchor="middle" x="{x(size):.1f}" y="{BOTTOM + 18}">{count(size)}</text>'
    yield f'<text text-anchor="middle" x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 36}">entries</text>'

    colours = iter(["--a", "--b", "--c"])
    labels = []
    for line in lines:
        colour = "--floor" if line.is_floor else next(colours)
        points = " ".join(f"{x(size):.1f},{y(value):.1f}" for size, value in line.points)
        dash = ' stroke-dasharray="5 4"' if line.is_floor else ""
        yield f'<polyline class="line" points="{points}" stroke="var({colour})"{dash}/>'
        for size, value in line.points:
            yield (f'<circle cx="{x(size):.1f}" cy="{y(value):.1f}" r="3" fill="var({colour})">'
                   f"<title>{escape(line.name)}, {count(size)} entries: {short(value)} {escape(unit)}</title></circle>")
        labels.append([y(line.points[-1][1]), f"{short(line.points[-1][1])}  {line.name}", colour])
    for position, text, colour in spread(labels):
        yield f'<text x="{RIGHT + 10}" y="{position + 4:.1f}" style="fill: var({colour})">{escape(text)}</text>'


def axis(lowest, highest, logarithmic):
    """Where it begins and ends, and its marks."""
    if logarithmic:
        first, last = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
        last = max(last, first + 1)
        return 10.0 ** first, 10.0 ** last, [10.0 ** power for power in range(first, last + 1)]
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000, 1e9) if highest / step <= 6)
    top = math.ceil(highest / step) * step
    return 0, top, [step * index for index in range(int(top / step) + 1)]


def spread(labels):
    """Labels that would lie on each other are moved apart, and stay within the chart."""
    labels.sort()
    for before, after in zip(labels, labels[1:]):
        after[0] = max(after[0], before[0] + 15)
    lowest = BOTTOM
    for label in reversed(labels):
        label[0] = min(label[0], lowest)
        lowest = label[0] - 15
    return labels


def short(value):
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3 if value >= 0.01 else 4
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def count(size):
    return f"{size / 1e6:g} M" if size >= 1e6 else f"{size / 1e3:g} k" if size >= 1e3 else str(size)
