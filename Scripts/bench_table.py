"""Tables of bench.json's figures, in Markdown."""

from statistics import median

PEERS = [("sqlite", "SQLite"), ("lmdb", "LMDB"), ("nginx", "nginx"), ("mapproxy", "MapProxy")]
# The proxy's rows, and what its CPU or its rate must be to nginx's.
PROXY = {
    "memory": ("hit from memory", ("cpu", 0.75)), "files": ("hit, memory tier off", ("cpu", 0.95)),
    "same": ("hit, 90 % of the tiles alike", ("rate", 1.0)), "cold": ("cold fill", ("rate", 0.5)),
}


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
    if value is None or value != value:
        return ""
    return f"{value:.4f}" if value < 0.01 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def target(figure):
    if "verdict" in figure:
        return figure["verdict"]
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
    sizes = {figure["entries"] for figure in grown}
    largest = 1_000_000 if 1_000_000 in sizes else max(sizes, default=0)
    for row in ("growth-verify", "growth-verify-speed", "growth-stall-read", "growth-stall-put", "growth-compact-memory"):
        figures += [
            dict(figure, what=f"{figure['what']}, {largest:,} entries")
            for figure in grown if figure["row"] == row and figure["entries"] == largest]
    figures += proxy_figures(result)
    if not figures:
        return []
    peers = [(name, title) for name, title in PEERS if any(name in figure.get("peers", {}) for figure in figures)]
    header = ["what", "ours", "floor", "ours/floor", "target", ""]
    for _, title in peers:
        header += [title, f"{title}/ours"]
    lines = []
    for figure in figures:
        unit = figure["unit"]
        line = [figure["what"], number(figure["ours"], unit), number(figure.get("floor"), unit),
                ratio(figure.get("ratio")), *target(figure)]
        for name, _ in peers:
            peer = figure.get("peers", {}).get(name)
            line += [number(peer["value"], unit), ratio(peer["ratio"])] if peer else ["", ""]
        lines.append(line)
    absent = {"lmdb": "rows", "nginx": "proxy", "mapproxy": "proxy"}
    for name, title in PEERS:
        # Said only of what would have been measured.
        if absent.get(name) in result and (name, title) not in peers:
            lines.append([f"{title}: not installed"] + [""] * (len(header) - 1))
    return layout(header, lines)


def growth_table(result):
    """All sizes side by side."""
    return by_size(result.get("growth", []))


def fan_out_table(result):
    """Folders of files without the store."""
    return by_size(result.get("fan-out", []), "files in")


def by_size(figures, title="entries"):
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
    return layout([title] + [f"{size:,}" for size in sizes] + ["target", ""], lines) if lines else []


def proxy_figures(result):
    """The tile routes of tileproxy beside other servers, as rows of the one table."""
    found = {(entry["row"], entry["who"]): entry["samples"] for entry in result.get("proxy", [])}
    figures = []
    for row, (what, (judged, limit)) in PROXY.items():
        ours = found.get((row, "tiles"))
        if not ours:
            continue
        for value, name, unit in (("rate", "requests", "/s"), ("cpu", "CPU a request", "µs")):
            peers = {}
            for peer in ("nginx", "mapproxy"):
                theirs = found.get((row, peer))
                if theirs:
                    peers[peer] = {
                        "value": median(sample[value] for sample in theirs),
                        "ratio": median(a[value] / b[value] for a, b in zip(theirs, ours))}
            figure = {
                "what": f"proxy, {what}: {name}", "unit": unit, "ours": median(sample[value] for sample in ours),
                "peers": peers}
            if value == judged and "nginx" in peers:
                to_nginx = median(a[value] / b[value] for a, b in zip(ours, found[row, "nginx"]))
                passed = to_nginx <= limit if value == "cpu" else to_nginx >= limit
                figure["verdict"] = (f"{'<=' if value == 'cpu' else '>='} {limit:g}x nginx", "pass" if passed else "MISS")
            figures.append(figure)
    return figures
