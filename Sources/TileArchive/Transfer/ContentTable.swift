/// Where each content was written: a table by number, in memory while it is small, else in a temporary file.
package struct ContentTable {
    package struct Place: BitwiseCopyable {
        package var position: UInt64
        /// 0 for a content that has not been written.
        package var length: UInt64

        package init(position: UInt64, length: UInt64) {
            self.position = position
            self.length = length
        }
    }

    private var places: [Place] = []
    private var file: ScratchFile?
    private let inMemory: Int

    package init(count: UInt64, inMemory: Int = 1 << 17) throws {
        self.inMemory = inMemory
        places = Array(repeating: Place(position: 0, length: 0), count: Int(min(count, UInt64(inMemory))))
        guard count > UInt64(inMemory) else { return }
        let file = try ScratchFile.unnamed()
        // A hole, which reads as zeros.
        try file.truncate(to: (count - UInt64(inMemory)) * UInt64(MemoryLayout<Place>.stride))
        self.file = file
    }

    private func offset(_ number: UInt64) -> UInt64 {
        (number - UInt64(inMemory)) * UInt64(MemoryLayout<Place>.stride)
    }

    /// The place of a content; `nil` if it has none yet.
    package func place(of number: UInt64) throws -> Place? {
        var place = Place(position: 0, length: 0)
        if number < UInt64(places.count) {
            place = places[Int(number)]
        } else if let file {
            _ = try withUnsafeMutableBytes(of: &place) { try file.read(into: $0, at: offset(number)) }
        }
        return place.length > 0 ? place : nil
    }

    package mutating func set(_ number: UInt64, _ place: Place) throws {
        if number < UInt64(places.count) {
            places[Int(number)] = place
        } else if let file {
            try withUnsafeBytes(of: place) { try file.write($0, at: offset(number)) }
        }
    }
}
