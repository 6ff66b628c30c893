// They look at pixels and damage as libpng, libjpeg-turbo and libwebp see them.
#if !canImport(ImageIO)
import Foundation
import Testing
import TileImaging
import TileStore
import TileStoreTesting

@Suite(.timeLimit(.minutes(60)), .ownCores)
struct TileImageTests {
    private func enlarged(_ data: Data, _ x: Int, _ y: Int, _ side: Int, to size: Int) throws -> Seen {
        try Seen(
            TileImage.overzoomed(
                data, crop: PixelRect(x: x, y: y, width: side, height: side), width: size, height: size))
    }

    private func code(_ body: () throws -> some Any) -> ImagingError.Code? {
        do { _ = try body() } catch { return (error as? ImagingError)?.code }
        return nil
    }

    // MARK: Headers

    @Test
    func headersAreReadWithoutUnpacking() throws {
        for (name, data) in try Pictures.all() {
            let header = try TileImage.header(of: data)
            #expect(header.width == 16 && header.height == 16 && !header.isAnimated, "\(name)")
            #expect(header.bitDepth == ["palette": 4, "grey16": 16][name, default: 8], "\(name)")
            #expect(header.hasPalette == (name == "palette"))
        }
        #expect(try TileImage.header(of: Pictures.animated).isAnimated)
        #expect(try TileImage.header(of: Pictures.cmyk).format == .jpeg)
        // A slice does not begin at 0.
        #expect(try TileImage.header(of: (Data([1, 2, 3]) + Pictures.rgba).dropFirst(3)).width == 16)
    }

    @Test
    func whatIsNoPictureIsSaidToBeNone() throws {
        for text in ["", "<html>", "GIF89a..........", "RIFF....WAVEfmt ", "\u{89}PN"] {
            #expect(code { try TileImage.header(of: Data(text.utf8)) } == .unsupported)
        }
        for (name, data) in try Pictures.all() {
            for length in 12..<24 where data.count > length {
                let error = code { try TileImage.header(of: data.prefix(length)) }
                #expect(error == .damaged, "\(name) cut to \(length)")
            }
        }
        // A JPEG whose segment has no length, and one of nothing but fill bytes.
        #expect(code { try TileImage.header(of: Data([0xFF, 0xD8, 0xFF, 0xE0, 0, 0])) } == .damaged)
        #expect(
            code { try TileImage.header(of: Data([0xFF, 0xD8] + [UInt8](repeating: 0xFF, count: 99))) } == .damaged)
    }

    // MARK: What comes out

    @Test
    func aPaletteAndItsTransparencyAreKept() throws {
        let original = try Seen(Pictures.palette)
        let result = try enlarged(Pictures.palette, 4, 8, 4, to: 16)
        #expect(result.palette == original.palette && result.alpha == original.alpha && result.depth == 4)
        for y in 0..<16 {
            for x in 0..<16 { #expect(result[x, y] == original[4 + x / 4, 8 + y / 4]) }
        }
    }

    @Test
    func sizesThatDoNotDivideRepeatPixelsEvenly() throws {
        let result = try enlarged(Pictures.palette, 0, 0, 3, to: 16)
        let original = try Seen(Pictures.palette)
        #expect((0..<16).map { result[$0, 0] } == (0..<16).map { original[$0 * 3 / 16, 0] })
    }

    /// The four quarters of a picture, each enlarged for itself, are the picture enlarged.
    @Test(arguments: ["rgba", "grey16", "webp lossless"])
    func partsOfOnePictureMeetWithoutASeam(name: String) throws {
        let data = try #require(try Pictures.all().first { $0.name == name }?.data)
        let whole = try enlarged(data, 0, 0, 16, to: 32)
        for (x, y) in [(0, 0), (8, 0), (0, 8), (8, 8)] {
            let part = try enlarged(data, x, y, 8, to: 16)
            for row in 0..<16 {
                for column in 0..<16 { #expect(part[column, row] == whole[2 * x + column, 2 * y + row]) }
            }
        }
    }

    @Test
    func enlargingIsCentred() throws {
        let data = MadePNG(width: 2, height: 1, colours: 0) { _ in [0, 200] }.data
        let result = try Seen(
            TileImage.overzoomed(data, crop: PixelRect(x: 0, y: 0, width: 2, height: 1), width: 4, height: 1))
        // By hand: centres at -0.25, 0.25, 0.75 and 1.25 of the way.
        #expect(result.bytes == [0, 50, 150, 200])
    }

    @Test
    func whatIsTransparentDoesNotBleed() throws {
        // Red beside a transparent pixel that happens to be green.
        let data = MadePNG(width: 2, height: 1) { _ in [255, 0, 0, 255, 0, 255, 0, 0] }.data
        let result = try Seen(
            TileImage.overzoomed(data, crop: PixelRect(x: 0, y: 0, width: 2, height: 1), width: 4, height: 1))
        #expect(
            (0..<4).map { result[$0, 0] } == [[255, 0, 0, 255], [255, 0, 0, 191], [255, 0, 0, 64], [0, 0, 0, 0]])
    }

    @Test
    func aColourThatStandsForTransparentBecomesAlpha() throws {
        let data = MadePNG(width: 2, height: 2, colours: 2, alpha: [0, 9, 0, 9, 0, 9]) { y in
            y == 0 ? [9, 9, 9, 1, 2, 3] : [1, 2, 3, 1, 2, 3]
        }.data
        let result = try enlarged(data, 0, 0, 2, to: 2)
        #expect(result.channels == 4 && result[0, 0][3] == 0 && result[1, 0] == [1, 2, 3, 255])
    }

    @Test
    func sixteenBitsBecomeEightAndOneBitToo() throws {
        let sixteen = try enlarged(Pictures.grey16, 0, 0, 16, to: 16)
        #expect(sixteen.depth == 8 && sixteen.channels == 1 && sixteen[15, 0] == [239])
        let one = MadePNG(width: 8, height: 1, depth: 1, colours: 0) { _ in [0b1010_0000] }.data
        let result = try Seen(
            TileImage.overzoomed(one, crop: PixelRect(x: 0, y: 0, width: 8, height: 1), width: 8, height: 1))
        #expect(result.bytes == [255, 0, 255, 0, 0, 0, 0, 0] && result.depth == 8)
    }

    @Test
    func anInterlacedPictureIsTheSamePicture() throws {
        let crop = PixelRect(x: 3, y: 5, width: 7, height: 9)
        #expect(
            try TileImage.overzoomed(Pictures.interlaced, crop: crop, width: 16, height: 16)
                == TileImage.overzoomed(Pictures.rgba, crop: crop, width: 16, height: 16))
    }

    @Test
    func formatsAreKept() throws {
        for (name, data) in try Pictures.all() {
            let before = try TileImage.header(of: data)
            let made = try TileImage.overzoomed(
                data, Overzoom.of(try TileAddress(z: 2, x: 2, y: 1), from: 0))
            let after = try TileImage.header(of: made)
            #expect(after.format == before.format && after.width == 16 && after.height == 16, "\(name)")
            #expect(try Seen(made).isLossless == Seen(data).isLossless, "\(name)")
            #expect(try Seen(made).channels == Seen(data).channels, "\(name)")
        }
    }

    @Test
    func coloursOfLossyPicturesStayNear() throws {
        for format in [PictureFormat.jpeg, .webP] {
            let data = try Pictures.encoded(format, side: 64) { x, _ in x < 32 ? [200, 40, 40] : [40, 40, 200] }
            let result = try enlarged(data, 32, 0, 32, to: 64)
            let pixel = result[60, 30]
            for (have, want) in zip(pixel, [40, 40, 200]) { #expect(abs(Int(have) - want) < 12, "\(format) \(pixel)") }
        }
    }

    @Test
    func theSameBytesGiveTheSameBytes() throws {
        for (_, data) in try Pictures.all() {
            let overzoom = try Overzoom.of(TileAddress(z: 1, x: 1, y: 0), from: 0)
            #expect(try TileImage.overzoomed(data, overzoom) == TileImage.overzoomed(data, overzoom))
        }
    }

    @Test
    func onePixelIsEnoughAndLessIsNot() throws {
        let last = try Overzoom.of(TileAddress(z: 4, x: 15, y: 15), from: 0)
        #expect(try Seen(TileImage.overzoomed(Pictures.palette, last)).width == 16)
        let beyond = try Overzoom.of(TileAddress(z: 5, x: 31, y: 31), from: 0)
        #expect(code { try TileImage.overzoomed(Pictures.palette, beyond) } == .invalidCrop)
    }

    // MARK: What is refused

    @Test
    func bombsAreRefusedBeforeTheyAreUnpacked() throws {
        func refused(_ data: Data, _ options: ImagingOptions = ImagingOptions(), size: Int = 16) -> ImagingError.Code? {
            code {
                try TileImage.overzoomed(
                    data, crop: PixelRect(x: 0, y: 0, width: 1, height: 1), width: size, height: size, options: options)
            }
        }
        // Headers alone: had anything been unpacked, they would be damaged.
        var png = Array(Pictures.rgba.prefix(33))
        png.replaceSubrange(16..<24, with: [0, 0, 0xEA, 0x60, 0, 0, 0xEA, 0x60])
        #expect(refused(Data(png)) == .tooLarge)
        png.replaceSubrange(16..<24, with: [0x7F, 0xFF, 0xFF, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF])
        #expect(refused(Data(png)) == .tooLarge)
        #expect(refused(Data([0xFF, 0xD8, 0xFF, 0xC0, 0, 17, 8, 0xFF, 0xFF, 0xFF, 0xFF, 3])) == .tooLarge)
        let webP = Data("RIFF....WEBPVP8L....".utf8) + Data([0x2F, 0xFF, 0xFF, 0xFF, 0x0F])
        #expect(refused(webP) == .tooLarge)
        var few = ImagingOptions()
        few.maximumPixels = 255
        #expect(refused(Pictures.rgba, few) == .tooLarge)
        few = ImagingOptions()
        few.maximumBytes = 100
        #expect(refused(Pictures.rgba, few) == .tooLarge)
        for size in [4096, 1 << 31, .max] { #expect(refused(Pictures.rgba, size: size) == .tooLarge) }
        for size in [0, -1, .min] { #expect(refused(Pictures.rgba, size: size) == .invalidCrop) }
    }

    @Test
    func aJPEGOfCountlessScansIsRefused() throws {
        let bytes = Array(Pictures.progressive)
        let starts = bytes.indices.dropLast().filter { bytes[$0] == 0xFF && bytes[$0 + 1] == 0xDA }
        let first = try #require(starts.first), second = try #require(starts.dropFirst().first)
        // The first scan, of the coarsest values, again and again.
        let scan = bytes[first..<second]
        var many = Array(bytes[..<second])
        for _ in 0..<200 { many += scan }
        many += bytes[second...]
        #expect(code { try enlarged(Data(many), 0, 0, 4, to: 16) } == .damaged)
    }

    @Test
    func animationsAndPicturesForPrintAreRefused() throws {
        #expect(code { try enlarged(Pictures.animated, 0, 0, 4, to: 16) } == .unsupported)
        #expect(code { try enlarged(Pictures.cmyk, 0, 0, 4, to: 16) } == .unsupported)
    }

    @Test
    func partsOutsideOfThePictureAreRefused() throws {
        for crop in [
            PixelRect(x: 13, y: 0, width: 4, height: 4), PixelRect(x: -1, y: 0, width: 4, height: 4),
            PixelRect(x: 0, y: 0, width: 0, height: 4), PixelRect(x: .max, y: .max, width: .max, height: .max),
        ] {
            #expect(code { try TileImage.overzoomed(Pictures.rgba, crop: crop, width: 16, height: 16) } == .invalidCrop)
        }
    }

    @Test
    func aColourThatIsNotInThePaletteIsDamage() throws {
        let data = MadePNG(width: 2, height: 2, colours: 3, palette: [1, 2, 3]) { _ in [0, 7] }.data
        #expect(code { try enlarged(data, 0, 0, 2, to: 2) } == .damaged)
    }

    /// Wherever a picture is cut off, even after the part that is asked for.
    @Test
    func whatIsCutOffIsDamage() throws {
        for (name, data) in try Pictures.all() {
            for length in 0..<data.count {
                let error = code { try enlarged(data.prefix(length), 0, 0, 4, to: 16) }
                #expect(error == .damaged || (length < 12 && error == .unsupported), "\(name) cut to \(length)")
            }
        }
    }
}

extension Overzoom {
    static func of(_ tile: TileAddress, from zoom: Int) throws -> Overzoom {
        try #require(Overzoom(of: tile, from: zoom))
    }
}
#endif
