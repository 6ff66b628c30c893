"""Tables of bench.json's figures, in Markdown."""

PEERS = [("sqlite", "SQLite"), ("lmdb", "LMDB")]


def number(value, unit):
    """A value as people read it."""
    if value is None or value != value:
        return ""
    if unit == "µs":
        return f"{value:.3f} µs" if value < 1 else f"{value:.2f} µs" if value < 100 else f"{value:,.0f} µs"
    if unit == "s":
        return f"{value * 1000:.1f} ms" if value < 0.1 else f"{value:.3f} s" if value < 10 else f"{value:.1f} s"
    if unit == "ms":
        return f"{value:.3f} ms" if value < 10 else f"{value:.1f} ms"
    if unit == "B/entry":
        return f"{value:.1f} B"
    if unit == "x":
        return f"{value:.2f}x"
    if unit == "B":
        return f"{value / 1024:,.0f} KiB"
    return f"{value:,.0f} {unit}"


def ratio(value):
    return "" if value is None or value != value else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def target(figure):
    if not figure.get("target"):
        return "", ""
    (kind, limit), = figure["target"].items()
    limit = limit["_0"] if isinstance(limit, dict) else limit
    sign = "<=" if kind in ("atMost", "ratioAtMost") else ">="
    of_floor = kind.startswith("ratio")
    value = figure.get("ratio") if of_floor else figure["ours"]
    passed = value is not None and (value <= limit if sign == "<=" else value >= limit)
    text = f"{limit:g}x floor" if of_floor else number(limit, figure["unit"])
    return f"{sign} {text}", "pass" if passed else "MISS"


def layout(header, rows):
    """The first column to the left, the others to the right."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]

    def line(cells):
        padded = [cell.ljust(width) if column == 0 else cell.rjust(width)
                  for column, (cell, width) in enumerate(zip(cells, widths))]
        return "| " + " | ".join(padded) + " |"

    rule = ["-" * (width + 2) if column == 0 else "-" * (width + 1) + ":" for column, width in enumerate(widths)]
    return [line(header), "|" + "|".join(rule) + "|", *map(line, rows)]


def rows_table(result):
    """The store beside its floors and peers; of the growing caches, what is measured nowhere else."""
    figures = list(result.get("rows", []))
    grown = result.get("growth", [])
    largest = max((figure["entries"] for figure in grown), default=0)
    for row in ("growth-verify", "growth-verify-speed", "growth-stall-read", "growth-stall-put", "growth-compact-memory"):
        figures += [
            dict(figure, what=f"{figure['what']}, {largest:,} entries")
            for figure in grown if figure["row"] == row and figure["entries"] == largest]
    if not figures:
        return []
    header = ["what", "ours", "floor", "ours/floor", "target", ""]
    for _, title in PEERS:
        header += [title, f"{title}/ours"]
    lines = []
    for figure in figures:
        unit = figure["unit"]
        line = [figure["what"], number(figure["ours"], unit), number(figure.get("floor"), unit),
                ratio(figure.get("ratio")), *target(figure)]
        for name, _ in PEERS:
            peer = figure.get("peers", {}).get(name)
            line += [number(peer["value"], unit), ratio(peer["ratio"])] if peer else ["", ""]
        lines.append(line)
    if not any("lmdb" in figure.get("peers", {}) for figure in figures):
        lines.append(["LMDB: not installed (liblmdb-dev)"] + [""] * (len(header) - 1))
    return layout(header, lines)


def growth_table(result):
    """All sizes side by side."""
    figures = result.get("growth", [])
    sizes = sorted({figure["entries"] for figure in figures})
    lines = []
    for row in dict.fromkeys(figure["row"] for figure in figures):
        found = {figure["entries"]: figure for figure in figures if figure["row"] == row}
        last = found[max(found)]
        wanted = [figure for _, figure in sorted(found.items()) if figure.get("target")]
        verdict = "" if not wanted else "pass" if all(target(figure)[1] == "pass" for figure in wanted) else "MISS"
        lines.append(
            [last["what"]] + [number(found[size]["ours"], last["unit"]) if size in found else "" for size in sizes]
            + [target(wanted[-1])[0] if wanted else "", verdict])
        if any(figure.get("ratio") for figure in found.values()):
            lines.append(["… to its floor"] + [ratio(found[size].get("ratio")) if size in found else "" for size in sizes]
                         + ["", ""])
        if row in ("growth-hit-disk", "growth-hit-memory") and sizes[0] in found:
            first = found[sizes[0]]["ours"]
            changes = [found[size]["ours"] / first if size in found else None for size in sizes]
            lines.append([f"… to that of {sizes[0]:,} entries"] + [ratio(change) for change in changes]
                         + ["<= 1.3", "pass" if all(change is None or change <= 1.3 for change in changes) else "MISS"])
    return layout(["what"] + [f"{size:,}" for size in sizes] + ["target", ""], lines) if lines else []


def proxy_table(result):
    """Servers beside each other: medians of the rounds."""
    from statistics import median
    lines = []
    for found in result.get("proxy", []):
        values = {what: median(sample[what] for sample in found["samples"]) for what in ("rate", "cpu", "p99")}
        lines.append([found["row"], found["who"], f"{values['rate']:,.0f}", f"{values['cpu']:.1f}",
                      f"{values['p99'] / 1000:.2f}"])
    return layout(["proxy", "who", "requests/s", "CPU µs", "p99 ms"], lines) if lines else []
