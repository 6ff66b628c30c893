// They look at pixels and damage as libpng, libjpeg-turbo and libwebp see them.
#if !canImport(ImageIO)
import Foundation
import Testing
import TileImaging
import TileStore
import TileStoreTesting

/// Bytes that were bent: a picture of the right size or an error of ours, and never a crash.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct FuzzTests {
    static let crop = PixelRect(x: 3, y: 2, width: 5, height: 6)

    /// Flips, overwrites, cuts, repeats or drops some bytes.
    static func bend(_ data: Data, _ random: inout SplitMix64) -> Data {
        var bytes = Array(data)
        for _ in 0...random.below(4) where bytes.count > 4 {
            let at = random.below(bytes.count)
            switch random.below(6) {
            case 0: bytes[at] ^= 1 << UInt8(random.below(8))
            case 1: bytes[at] = random.pick([0, 1, 0x7F, 0x80, 0xFF])
            case 2: bytes[at] = UInt8(random.below(256))
            case 3: bytes.removeSubrange(at..<min(bytes.count, at + 1 + random.below(8)))
            case 4: bytes.insert(contentsOf: bytes[at..<min(bytes.count, at + 1 + random.below(32))], at: at)
            default: bytes.removeLast(min(bytes.count - 4, random.below(16)))
            }
        }
        return Data(bytes)
    }

    /// Draws what may be bent, and looks at what comes out.
    ///
    /// - Returns: Whether a picture came out.
    static func survives(_ data: Data, crop: PixelRect = crop, size: Int = 16) throws -> Bool {
        var options = ImagingOptions()
        options.maximumPixels = 1 << 20
        do {
            let made = try TileImage.overzoomed(data, crop: crop, width: size, height: size, options: options)
            let header = try TileImage.header(of: made)
            #expect(header.width == size && header.height == size)
            return true
        } catch {
            #expect(!error.message.isEmpty && error.code != .failed, "\(error)")
            return false
        }
    }

    @Test(arguments: Seeds.list(16))
    func bentPicturesAreErrors(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let pictures = try Pictures.all().map(\.data) + [Pictures.cmyk, Pictures.animated]
        var drawn = 0
        for _ in 0..<250 where try Self.survives(Self.bend(random.pick(pictures), &random)) { drawn += 1 }
        // Some damage harms nothing, such as a flipped bit in a JPEG: else the test would show little.
        #expect(drawn > 0 && drawn < 250)
    }

    @Test(arguments: Seeds.list(4))
    func bytesThatWereNeverAPictureAreErrors(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let starts = [Pictures.rgba.prefix(8), Pictures.progressive.prefix(3), Pictures.animated.prefix(16)]
        for _ in 0..<500 {
            let noise = (0..<random.below(200)).map { _ in UInt8(random.below(256)) }
            _ = try Self.survives(random.pick(starts) + noise)
        }
    }

    /// The tiles that come with the package.
    static let sample: [URL] = {
        let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appendingPathComponent("Sample/world")
        let files = FileManager.default.enumerator(at: folder, includingPropertiesForKeys: nil)
        return (files?.compactMap { $0 as? URL } ?? []).filter { $0.pathExtension == "png" }
            .sorted { $0.path < $1.path }
    }()

    @Test
    func realTilesAreEnlargedAndBentOnesRefused() throws {
        try #require(Self.sample.count > 50)
        var random = SplitMix64(seed: 5)
        for index in stride(from: 0, to: Self.sample.count, by: Self.sample.count / 24) {
            let data = try Data(contentsOf: Self.sample[index])
            let header = try TileImage.header(of: data)
            let crop = PixelRect(x: 64, y: 128, width: 64, height: 64)
            #expect(header.width == 256 && header.height == 256)
            #expect(try Self.survives(data, crop: crop, size: 256))
            for _ in 0..<4 { _ = try Self.survives(Self.bend(data, &random), crop: crop, size: 256) }
        }
    }
}
#endif
