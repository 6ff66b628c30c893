import Foundation
import TileStoreTesting

@testable import TileStore

extension FuzzTarget {
    /// The index image, whose checksums would keep an input from ever being looked at: an input changes a good image, and what it has
    /// changed is sealed anew.
    static let image = [
        FuzzTarget(name: "index-image") { bytes in
            var image = SampleImage.bytes
            try promise(!image.isEmpty, "the sample has an image")
            SampleImage.change(&image, bytes)
            SampleImage.seal(&image)
            let disk = SimulatedDisk(clock: ManualClock())
            disk.plantFolder("manifest")
            disk.plant(SampleImage.path, image)
            let files = SimulatedFileSystem(disk)
            let file = try files.open(SampleImage.path, .read)
            defer { files.close(file) }
            var bounds = TableBounds()
            // What a good image of so many entries may take, this one may take too.
            bounds.slots = 50_000
            let loaded = try IndexImageReader(files, file, 1, bounds).load { _ in true }
            try promise(loaded != nil || !bytes.isEmpty, "a good image is none")
            if let (tables, _) = loaded {
                try promise(tables.entries.count <= 50_000 && tables.blobs.count <= 50_000, "more than the bounds")
            }
        }
    ]
}

private enum SampleImage {
    static let path = IndexImage.path(1)

    /// An image of a cache with some of everything; empty if it cannot be made.
    static let bytes: [UInt8] = {
        do { return try made() } catch { return [] }
    }()

    private static func made() throws -> [UInt8] {
        let clock = ManualClock()
        let disk = SimulatedDisk(clock: clock)
        var configuration = StoreConfiguration()
        configuration.indexImages = .always
        let store = try TileStore(
            environment: clock.environment(SimulatedFileSystem(disk)), configuration: configuration)
        for number in 0..<40 {
            let fields = ResponseFields(
                mediaType: "image/png", headers: [.init(name: "x-number", value: "\(number % 3)")])
            let metadata = TileMetadata(
                response: fields, etag: "\"\(number)\"", storedAt: clock.now, expires: clock.now.adding(seconds: 60))
            let key = try TileKey(number % 4 == 0 ? "w:fonts/\(number).pbf" : "w/8/\(number)/1")
            try store.put(Data("\(number % 7)".utf8), for: key, metadata: metadata)
        }
        _ = try store.compact()
        _ = try store.writeIndexImage()
        store.simulateKill()
        return disk.contents(path) ?? []
    }

    /// Eight bytes of an input are one change: where, counted from the beginning or the end, and what.
    static func change(_ image: inout [UInt8], _ input: [UInt8]) {
        for at in stride(from: 0, through: input.count - 8, by: 8) {
            let (place, kind) = (Int(input[at]) | Int(input[at + 1]) << 8 | Int(input[at + 2]) << 16, input[at + 3])
            let start = kind & 1 == 0 ? place % image.count : image.count - 1 - place % min(image.count, 8192)
            let value = input[(at + 4)..<(at + 8)]
            for (i, byte) in value.enumerated() where start + i < image.count {
                image[start + i] = kind & 2 == 0 ? byte : image[start + i] ^ byte
            }
        }
    }

    /// Makes all checksums right, as far as there is a directory.
    static func seal(_ image: inout [UInt8]) {
        let end = image.count - IndexImage.tailLength
        let (at, blocks) = (word(image, end + 8), word(image, end + 16))
        guard blocks < 1 << 16, at < UInt64(end), at + blocks * UInt64(IndexImage.blockLength) == UInt64(end) else {
            return
        }
        for block in stride(from: Int(at), to: end, by: IndexImage.blockLength) {
            let (offset, length) = (word(image, block + 16), word(image, block + 24))
            guard offset <= at, length <= at - offset else { continue }
            let sum = checksum(image, Int(offset)..<Int(offset + length))
            put([sum], into: &image, block + 32)
        }
        put(IndexImage.head(1), into: &image, 0)
        let directory = checksum(image, Int(at)..<end)
        put(
            IndexImage.tail(directory: Int(at), blocks: Int(blocks), checksum: directory, generation: 1), into: &image,
            end)
    }

    private static func word(_ image: [UInt8], _ at: Int) -> UInt64 {
        image.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: at, as: UInt64.self) }
    }

    private static func put(_ words: [UInt64], into image: inout [UInt8], _ at: Int) {
        words.withUnsafeBytes { image.replaceSubrange(at..<(at + $0.count), with: $0) }
    }

    private static func checksum(_ image: [UInt8], _ range: Range<Int>) -> UInt64 {
        image.withUnsafeBytes { LineChecksum.xxh64(UnsafeRawBufferPointer(rebasing: $0[range])) }
    }
}
