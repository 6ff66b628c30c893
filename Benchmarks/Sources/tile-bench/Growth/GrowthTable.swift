/// The figures of all sizes side by side.
struct GrowthTable {
    var figures: [Figure]

    /// The sizes that were measured.
    var sizes: [Int] { Set(figures.compactMap(\.entries)).sorted() }

    /// The table's lines.
    var lines: [String] {
        let sizes = sizes
        var rows: [[String]] = []
        var seen: Set<String> = []
        for figure in figures where figure.entries != nil && seen.insert(figure.row).inserted {
            let mine = sizes.map { size in figures.first { $0.row == figure.row && $0.entries == size } }
            let largest = mine.compactMap { $0 }.last ?? figure
            let targets = mine.compactMap { $0?.target }.last
            let passed = mine.compactMap { $0?.passed }
            rows.append(
                [largest.what] + mine.map { $0.map { Table.format($0.ours, $0.unit) } ?? "" } + [
                    targets.map { Table.format($0, figure.unit) } ?? "",
                    passed.isEmpty ? "" : passed.allSatisfy { $0 } ? "pass" : "MISS",
                ])
            if mine.contains(where: { $0?.ratio != nil }) {
                rows.append(
                    ["… to its floor"]
                        + mine.map { $0?.ratio.map { Table.ratio($0) } ?? "" } + ["", ""])
            }
        }
        return Table.lines(header: ["what"] + sizes.map(Table.grouped) + ["target", ""], rows: rows)
    }
}
