import Foundation

/// Prints figures as a table that is also Markdown.
struct Table {
    var figures: [Figure]

    /// The table's lines.
    var lines: [String] {
        let peers = Peer.allCases.filter { peer in figures.contains { $0.peers[peer.rawValue] != nil } }
        let header =
            ["what", "ours", "floor", "ours/floor", "target", ""] + peers.flatMap { [$0.title, "\($0.title)/ours"] }
        let rows = figures.map { figure in
            [
                figure.what,
                Table.format(figure.ours, figure.unit),
                figure.floor.map { Table.format($0, figure.unit) } ?? "",
                figure.ratio.map { Table.ratio($0) } ?? "",
                figure.target.map { Table.format($0, figure.unit) } ?? "",
                figure.passed.map { $0 ? "pass" : "MISS" } ?? "",
            ]
                + peers.flatMap { peer in
                    let value = figure.peers[peer.rawValue]
                    return [
                        value.map { Table.format($0.value, figure.unit) } ?? "",
                        value.map { Table.ratio($0.ratio) } ?? "",
                    ]
                }
        }
        return Table.lines(header: header, rows: rows)
    }

    /// Lays cells out: the first column to the left, the others to the right.
    static func lines(header: [String], rows: [[String]]) -> [String] {
        let widths = header.indices.map { column in
            ([header] + rows).map { $0[column].count }.max() ?? 0
        }
        func line(_ cells: [String]) -> String {
            let padded = cells.indices.map { column in
                let padding = String(repeating: " ", count: widths[column] - cells[column].count)
                return column == 0 ? cells[column] + padding : padding + cells[column]
            }
            return "| " + padded.joined(separator: " | ") + " |"
        }
        let rule = widths.indices.map { column in
            column == 0
                ? String(repeating: "-", count: widths[column] + 2)
                : String(repeating: "-", count: widths[column] + 1) + ":"
        }
        return [line(header), "|" + rule.joined(separator: "|") + "|"] + rows.map(line)
    }

    static func ratio(_ value: Double) -> String {
        guard value.isFinite else { return "-" }
        return value < 0.1 ? String(format: "%.3f", value) : String(format: "%.2f", value)
    }

    static func format(_ value: Double, _ unit: Figure.Unit) -> String {
        switch unit {
        case .microseconds: String(format: value < 1 ? "%.3f µs" : "%.2f µs", value)
        case .seconds: String(format: value < 0.1 ? "%.4f s" : "%.3f s", value)
        case .milliseconds: String(format: "%.3f ms", value)
        case .bytesAnEntry: String(format: "%.1f B", value)
        case .factor: String(format: "%.2fx", value)
        case .perSecond: grouped(value) + " /s"
        case .bytes: grouped(value / 1024) + " KiB"
        }
    }

    static func format(_ target: Figure.Target, _ unit: Figure.Unit) -> String {
        switch target {
        case .atMost(let limit): "<= " + format(limit, unit)
        case .atLeast(let limit): ">= " + format(limit, unit)
        case .ratioAtMost(let limit): String(format: "<= %.1fx floor", limit)
        case .ratioAtLeast(let limit): String(format: ">= %.1fx floor", limit)
        }
    }

    static func grouped(_ number: Int) -> String { grouped(Double(number)) }

    static func grouped(_ value: Double) -> String {
        guard value.isFinite else { return "-" }
        var digits = Array(String(Int(value.rounded())))
        var at = digits.count - 3
        while at > 0 {
            digits.insert(",", at: at)
            at -= 3
        }
        return String(digits)
    }
}
