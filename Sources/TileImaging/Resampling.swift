/// Where the pixels along one edge of the result come from.
struct Sampling {
    /// The source pixel, for repeated ones.
    let nearest: [Int]
    /// The first of two source pixels, for interpolated ones.
    let first: [Int]
    /// The second.
    let second: [Int]
    /// The share of the second, in 1/256.
    let share: [UInt32]

    /// Spreads a stretch of source pixels over a number of pixels.
    ///
    /// Centres of pixels are compared, so the result is not shifted (by half a pixel of the source, as it would be if
    /// edges were).
    /// - Parameters:
    ///   - start: The first source pixel of the stretch.
    ///   - count: How many it has.
    ///   - available: The source pixels that may be looked at, which may be some more.
    ///   - size: How many pixels there will be.
    init(start: Int, count: Int, available: Range<Int>, size: Int) {
        var (nearest, first, second, share): ([Int], [Int], [Int], [UInt32]) = ([], [], [], [])
        nearest.reserveCapacity(size)
        first.reserveCapacity(size)
        second.reserveCapacity(size)
        share.reserveCapacity(size)
        let last = available.upperBound - 1
        for index in 0..<size {
            nearest.append(start + index * count / size)
            // The centre in 1/256 of a source pixel, counted from the centre of the stretch's first.
            let centre = ((2 * index + 1) * count * 128 - size * 128).quotientDown(by: size)
            let whole = centre >> 8
            first.append(min(max(start + whole, available.lowerBound), last))
            second.append(min(max(start + whole + 1, available.lowerBound), last))
            share.append(UInt32(truncatingIfNeeded: centre & 255))
        }
        (self.nearest, self.first, self.second, self.share) = (nearest, first, second, share)
    }
}

extension Int {
    /// Divides by a positive number, and rounds down where `/` rounds towards zero.
    fileprivate func quotientDown(by divisor: Int) -> Int {
        let quotient = self / divisor
        return self % divisor < 0 ? quotient - 1 : quotient
    }
}

/// Draws parts of pictures at other sizes.
///
/// The samplings' places are those of `source`, whose rows are `width` pixels.
enum Resampling {
    /// Repeats pixels.
    static func nearest(
        _ source: UnsafeBufferPointer<UInt8>, width: Int, channels: Int, _ across: Sampling, _ down: Sampling
    ) -> [UInt8] {
        let (columns, rows) = (across.nearest.count, down.nearest.count)
        return [UInt8](unsafeUninitializedCapacity: columns * rows * channels) { result, count in
            var at = 0
            for row in down.nearest {
                let start = row * width
                for column in across.nearest {
                    for channel in 0..<channels {
                        result[at] = source[(start + column) * channels + channel]
                        at += 1
                    }
                }
            }
            count = at
        }
    }

    /// Interpolates between four pixels; weighs colours with their alpha, so that what is transparent does not bleed.
    static func bilinear(
        _ source: UnsafeBufferPointer<UInt8>, width: Int, channels: Int, _ across: Sampling, _ down: Sampling
    ) -> [UInt8] {
        let (columns, rows) = (across.first.count, down.first.count)
        let hasAlpha = channels == 2 || channels == 4
        let colours = hasAlpha ? channels - 1 : channels
        return [UInt8](unsafeUninitializedCapacity: columns * rows * channels) { result, count in
            var at = 0
            for row in 0..<rows {
                let (top, bottom, low) = (down.first[row] * width, down.second[row] * width, down.share[row])
                for column in 0..<columns {
                    let (left, right, east) = (across.first[column], across.second[column], across.share[column])
                    let (a, b) = ((top + left) * channels, (top + right) * channels)
                    let (c, d) = ((bottom + left) * channels, (bottom + right) * channels)
                    // Weights add up to 65536.
                    var (wa, wb) = ((256 - east) * (256 - low), east * (256 - low))
                    var (wc, wd) = ((256 - east) * low, east * low)
                    var whole: UInt32 = 65536
                    if hasAlpha {
                        // 255 times 65536 still fits in 32 bits.
                        wa *= UInt32(source[a + colours])
                        wb *= UInt32(source[b + colours])
                        wc *= UInt32(source[c + colours])
                        wd *= UInt32(source[d + colours])
                        whole = wa + wb + wc + wd
                    }
                    for channel in 0..<colours {
                        if whole == 0 {
                            result[at] = 0
                        } else {
                            let sum =
                                UInt64(wa) * UInt64(source[a + channel]) + UInt64(wb) * UInt64(source[b + channel])
                                + UInt64(wc) * UInt64(source[c + channel]) + UInt64(wd) * UInt64(source[d + channel])
                            result[at] = UInt8(truncatingIfNeeded: (sum + UInt64(whole / 2)) / UInt64(whole))
                        }
                        at += 1
                    }
                    if hasAlpha {
                        result[at] = UInt8(truncatingIfNeeded: (whole + 32768) >> 16)
                        at += 1
                    }
                }
            }
            count = at
        }
    }
}
