import ContentCoding
import Foundation
import Testing
import TileArchive
import TileSets
import TileStore
import TileStoreTesting

/// Conversions of archives without a cache.
@Suite("Conversions", .timeLimit(.minutes(60)), .ownCores)
struct ConversionTests {
    private let scratch: Scratch
    init() throws { scratch = try Scratch() }

    private func open(_ name: String) throws -> any ArchiveReader {
        try ArchiveFormat(path: name).open(scratch(name))
    }

    @discardableResult
    private func convert(
        _ from: String, _ to: String, _ notes: Notes = Notes(), _ change: (inout ArchiveConversion) -> Void = { _ in }
    ) throws -> TransferReport {
        var conversion = ArchiveConversion(try open(from))
        change(&conversion)
        return try conversion.run(to: scratch(to), format: ArchiveFormat(path: to), observer: notes)
    }

    /// Through random kinds of archive and back.
    @Test(arguments: Seeds.list(8))
    func tilesComeBackByteForByte(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let pyramid = Pyramid(seed: seed, zooms: random.below(3)...(3 + random.below(3)), share: 1 + random.below(3))
        try pyramid.write(to: scratch, "in")
        var before = "in"
        for step in 0..<5 {
            let next = "\(step)" + ["", ".mbtiles", ".pmtiles"][random.below(3)]
            let report = try convert(before, next)
            #expect(report.tiles == pyramid.tiles.count && report.bytes == pyramid.bytes)
            #expect(report.skipped == 0 && report.failed == 0 && !report.wasStopped)
            let reader = try open(next)
            #expect(try reader.everything().tiles.mapValues(\.data) == pyramid.tiles, "\(before) to \(next)")
            before = next
        }
        // The same file as by way of a cache.
        let store = try TileStore(at: scratch("cache"))
        try store.take(scratch("in"))
        try store.give(scratch("a.pmtiles"))
        try convert("in", "b.pmtiles") { $0.metadata.name = "s" }
        #expect(FileManager.default.contentsEqual(atPath: scratch("a.pmtiles"), andPath: scratch("b.pmtiles")))
        try store.publish(scratch("set"))
        try convert("set/set.json", "c.pmtiles")
        #expect(FileManager.default.contentsEqual(atPath: scratch("a.pmtiles"), andPath: scratch("c.pmtiles")))
        for name in try FileManager.default.contentsOfDirectory(atPath: scratch.path) { #expect(!name.hasPrefix(".")) }
    }

    @Test func scalesAndFormatsStayInFoldersAndCountOnceInPackages() throws {
        func picture(_ text: String) -> Data { Pyramid.magic + Data(text.utf8) }
        for (name, text) in [
            ("0/0/0.png", "png"), ("0/0/0.webp", "webp"), ("0/0/0@2x.png", "double"), ("1/0/0@2x.png", "only double"),
            ("1/1/1.webp", "only webp"),
        ] { try scratch.write(picture(text), to: "in/\(name)") }
        let report = try convert("in", "out")
        #expect(report.tiles == 4 && report.skipped == 1)
        // Bytes that are PNG, whatever the file was called.
        let out = try open("out")
        #expect(try out.tile(z: 0, x: 0, y: 0)?.data == picture("png"))
        #expect(FileManager.default.contents(atPath: scratch("out/0/0/0@2x.png")) == picture("double"))
        #expect(FileManager.default.contents(atPath: scratch("out/1/0/0@2x.png")) == picture("only double"))
        try convert("in", "out.pmtiles")
        let package = try open("out.pmtiles")
        #expect(try package.tile(z: 0, x: 0, y: 0)?.data == picture("png"))
        #expect(try package.tile(z: 1, x: 0, y: 0)?.data == picture("only double"))
        #expect(try package.everything().tiles.count == 3)
    }

    private func publish(_ archive: String) throws -> PublishReport {
        try FileManager.default.createDirectory(atPath: scratch("\(archive).set"), withIntermediateDirectories: true)
        let tiles = ArchiveToPublish(try open(archive), observer: Notes())
        let publisher = SetPublisher(tiles, source: try SourceName("s"), now: Timestamp(seconds: 2))
        return try publisher.publish(into: DiskFileSystem(location: scratch("\(archive).set")))
    }

    /// Files with other endings than the usual ones were listed, not found again, and left out as "removed meanwhile".
    @Test func filesOfAnyEndingAreConverted() throws {
        let endings = [".svg", ".PNG", ".mvt.gz", "", ".geojson", ".jpe", ".terrain"]
        for (row, ending) in endings.enumerated() {
            try scratch.write(Data("tile \(row)".utf8), to: "in/3/5/\(row)\(ending)")
        }
        for to in ["out", "out.mbtiles", "out.pmtiles"] {
            let notes = Notes()
            let report = try convert("in", to, notes)
            #expect(report.tiles == endings.count && report.skipped == 0, "\(to): \(notes.skips)")
            let reader = try open(to)
            for row in endings.indices where to != "out" {
                #expect(try reader.tile(z: 3, x: 5, y: row)?.data == Data("tile \(row)".utf8), "\(to): \(endings[row])")
            }
        }
        #expect(try publish("in").tiles == endings.count)
    }

    /// One file was listed, and another one read: a web page was written as a tile, and publishing gave up.
    @Test func ofSeveralFilesOfATileTheSameOneIsListedReadAndCompared() throws {
        let files = [
            "0/0/0.png": "<!DOCTYPE html><html>", "0/0/0.jpg": "zero", "1/0/0.mvt": "one", "1/0/0.pbf.gz": "no",
            "1/0/1.jpg": "no", "1/0/1.png": "two", "1/1/1.zz": "no", "1/1/1.bin": "three", "1/1/0.zz": "four",
        ]
        for (name, text) in files { try scratch.write(Data(text.utf8), to: "in/\(name)") }
        #expect(try convert("in", "out.pmtiles").tiles == 5)
        let out = try open("out.pmtiles")
        for (z, x, y, text) in [
            (0, 0, 0, "zero"), (1, 0, 0, "one"), (1, 0, 1, "two"), (1, 1, 1, "three"), (1, 1, 0, "four"),
        ] {
            #expect(try out.tile(z: z, x: x, y: y)?.data == Data(text.utf8), "\(text)")
        }
        let report = try TileComparison(
            old: ArchiveDigests(try open("in"), source: nil), new: ArchiveDigests(out, source: nil), observer: Notes()
        ).run()
        #expect(report.same == 5 && report.changed == 0 && report.added == 0 && report.removed == 0)
        #expect(try publish("in").tiles == 5)
    }

    @Test func aFolderThatSaysNonsenseOfItselfIsReadWithAWarning() throws {
        try scratch.write(Data("tile".utf8), to: "in/0/0/0.png")
        #expect(try open("in").warnings.isEmpty)
        for said in ["", "[1]", "{", String(repeating: "[", count: 100_000)] {
            try scratch.write(Data(said.utf8), to: "in/metadata.json")
            let reader = try open("in")
            #expect(reader.warnings.count == 1 && reader.warnings[0].contains("metadata.json is not used"))
            #expect(reader.metadata == ArchiveMetadata())
            #expect(try reader.tile(z: 0, x: 0, y: 0)?.data == Data("tile".utf8))
        }
    }

    @Test func whatAnArchiveSaysIsKeptAndCanBeChanged() throws {
        try Pyramid(seed: 1, zooms: 0...2).write(to: scratch, "in")
        let said = #"{"name":"Roads","attribution":"us","vector_layers":[{"id":"a","fields":{}}],"note":"x"}"#
        try scratch.write(Data(said.utf8), to: "in/metadata.json")
        try convert("in", "a.pmtiles")
        try convert("a.pmtiles", "b.mbtiles") { conversion in
            for (name, text) in [("attribution", ""), ("note", "[1]"), ("owner", "nobody")] {
                let isSet = conversion.metadata.set(name, to: text)
                #expect(isSet)
            }
            for name in ["minzoom", "bounds", "format"] {
                let isSet = conversion.metadata.set(name, to: "1")
                #expect(!isSet)
            }
        }
        try convert("b.mbtiles", "c")
        for name in ["a.pmtiles", "b.mbtiles", "c"] {
            let metadata = try open(name).metadata
            #expect(metadata.name == "Roads" && metadata.vectorLayers.map(\.id) == ["a"], "\(name)")
            #expect(metadata.attribution == (name == "a.pmtiles" ? "us" : nil), "\(name)")
        }
        let last = try String(contentsOfFile: scratch("c/metadata.json"), encoding: .utf8)
        #expect(last.contains(#""note":[1]"#) && last.contains(#""owner":"nobody""#), "\(last)")
    }

    @Test func aConversionThatIsStoppedLeavesNoPackage() throws {
        try Pyramid(seed: 2, zooms: 0...4).write(to: scratch, "in")
        for stop in [10, 350, 500, 1000] {
            for name in ["x.pmtiles", "x.mbtiles"] {
                let notes = Notes()
                notes.stopAfter = stop
                let report = try convert("in", name, notes)
                #expect(report.wasStopped, "\(stop)")
                #expect(!FileManager.default.fileExists(atPath: scratch(name)), "\(stop): \(name)")
            }
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: scratch.path) == ["in"])
    }

    /// An archive whose file is replaced between the two readings.
    @Test func anArchiveThatChangesMeanwhileIsConvertedAsItIs() throws {
        let tiles = Pyramid(seed: 3, zooms: 0...3)
        try tiles.write(to: scratch, "in")
        let reader = try open("in")
        /// Changes a file when half of the tiles were read for the second time.
        final class Changing: TransferObserver {
            var advances = 0
            let change: () -> Void
            init(_ change: @escaping () -> Void) { self.change = change }
            func skipped(_ what: String, _ why: String, count: Int) {}
            func failed(_ what: String, _ why: String) {}
            func advanced(_ progress: @autoclosure () -> TransferProgress) {
                advances += 1
                if advances == 90 { change() }
            }
            var wantsStop: Bool { false }
        }
        let other = Pyramid.magic + Data("another one".utf8)
        let folder = scratch("in")
        let observer = Changing {
            for x in 0..<8 {
                for y in 0..<8 {
                    #expect(
                        FileManager.default.createFile(atPath: "\(folder)/3/\(x)/\(y).png", contents: other))
                }
            }
        }
        _ = try ArchiveConversion(reader).run(to: scratch("o.pmtiles"), format: .pmtiles, observer: observer)
        for (place, tile) in try open("o.pmtiles").everything().tiles {
            #expect(tile.data == tiles.tiles[place] || place.z == 3 && tile.data == other, "\(place)")
        }
    }
}
