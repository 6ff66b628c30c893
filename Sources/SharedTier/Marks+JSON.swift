import TileStore

// The index object: JSON, so that a person can read it.
extension Marks {
    /// The index as it is written.
    package var json: String {
        let epochs = epochs.sorted { $0.key < $1.key }.map { "\"\($0.key)\": \"\($0.value)\"" }
        let marks = list.map { mark in
            "{\"source\": \"\(mark.source)\", \"zooms\": \(Self.json(mark.zooms)), \"columns\": \(Self.json(mark.columns)), "
                + "\"rows\": \(Self.json(mark.rows)), \"time\": \(mark.time.seconds)}"
        }
        return
            "{\n  \"format\": 1,\n  \"floor\": \(floor.seconds),\n  \"epochs\": {\(epochs.joined(separator: ", "))},\n"
            + "  \"marks\": [\(marks.isEmpty ? "" : "\n    ")\(marks.joined(separator: ",\n    "))]\n}\n"
    }

    private static func json(_ range: ClosedRange<Int>) -> String { "[\(range.lowerBound), \(range.upperBound)]" }

    /// Reads an index that somebody has written.
    ///
    /// - Returns: `nil` if it is none, is of a later format, is too large, or says anything that is out of range: then the last good
    ///   one counts. Members that are not known do not count.
    package init?(json bytes: UnsafeRawBufferPointer) {
        guard bytes.count <= Self.longest, let root = JSONValue(bytes, depth: 8)?.object, root["format"]?.integer == 1
        else { return nil }
        let epochs = root["epochs"]?.object ?? [:]
        let marks = root["marks"]?.array ?? []
        guard epochs.count <= Self.mostEpochs, marks.count <= Self.mostMarks,
            let floor = root["floor"].map({ $0.integer }) ?? 0, Self.times.contains(floor)
        else { return nil }
        var known: [SourceName: Epoch] = [:]
        for (name, value) in epochs {
            guard let name = try? SourceName(name), let epoch = value.string.flatMap({ Epoch($0) }) else { return nil }
            known[name] = epoch
        }
        var list: [Mark] = []
        for value in marks {
            guard let mark = Mark(value) else { return nil }
            list.append(mark)
        }
        self.init(known, list, floor: Timestamp(seconds: floor))
    }

    private static let times = 0...Timestamp.distantFuture.seconds
}

extension Mark {
    fileprivate init?(_ value: JSONValue) {
        guard let object = value.object, let name = object["source"]?.string, let source = try? SourceName(name),
            let zooms = object["zooms"].flatMap({ Self.range($0) }),
            let columns = object["columns"].flatMap({ Self.range($0) }),
            let rows = object["rows"].flatMap({ Self.range($0) }), let time = object["time"]?.integer
        else { return nil }
        self.init(source: source, zooms: zooms, columns: columns, rows: rows, time: Timestamp(seconds: time))
    }

    private static func range(_ value: JSONValue) -> ClosedRange<Int>? {
        let ends = value.array?.compactMap(\.integer) ?? []
        guard value.array?.count == 2, ends.count == 2, (0...Int64(1) << 28).contains(ends[0]),
            (ends[0]...Int64(1) << 28).contains(ends[1])
        else { return nil }
        return Int(ends[0])...Int(ends[1])
    }
}
