#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

// Sources, variants and resources, whose names stand for numbers in records.
extension Tables {
    func sourceNumber(_ utf8: UnsafeRawBufferPointer) -> UInt16? {
        let name = String(decoding: utf8, as: UTF8.self)
        if let number = sourceNumbers[name] { return number }
        guard let source = try? SourceName(name) else { return nil }
        guard sources.count < bounds.names else {
            exceeded = .sources
            return nil
        }
        sources.append(source)
        sourceNumbers[name] = UInt16(sources.count - 1)
        return UInt16(sources.count - 1)
    }

    /// The number of a source, which mostly is that of the line before.
    @inline(__always)
    func sourceNumberOfLine(_ utf8: UnsafeRawBufferPointer) -> UInt16? {
        guard let base = utf8.baseAddress, utf8.count == lastSourceLength, memcmp(base, lastSource, utf8.count) == 0
        else { return otherSource(utf8) }
        return lastSourceNumber
    }

    func otherSource(_ utf8: UnsafeRawBufferPointer) -> UInt16? {
        guard let number = sourceNumber(utf8) else { return nil }
        lastSource.copyMemory(from: utf8.baseAddress.unsafelyUnwrapped, byteCount: utf8.count)
        (lastSourceLength, lastSourceNumber) = (utf8.count, number)
        return number
    }

    @inline(__always)
    func variantNumber(_ scale: Int, _ format: UnsafeRawBufferPointer?) -> UInt16? {
        if scale == 1, format == nil { return 0 }
        return otherVariant(scale, format)
    }

    func otherVariant(_ scale: Int, _ format: UnsafeRawBufferPointer?) -> UInt16? {
        // Formats have 12 bytes at most: with the scale they fit into two words, which say whether it is the last one again.
        var mark: (UInt64, UInt64) = (0, UInt64(truncatingIfNeeded: scale) << 56)
        if let format, format.count <= 12 {
            withUnsafeMutableBytes(of: &mark) { $0.copyMemory(from: format) }
            if mark == lastVariantMark { return lastVariantNumber }
        }
        guard let number = enteredVariant(scale, format) else { return nil }
        if (format?.count ?? 13) <= 12 { (lastVariantMark, lastVariantNumber) = (mark, number) }
        return number
    }

    func enteredVariant(_ scale: Int, _ format: UnsafeRawBufferPointer?) -> UInt16? {
        let format = format.map { String(decoding: $0, as: UTF8.self) }
        let name = "\(scale).\(format ?? "")"
        if let number = variantNumbers[name] { return number }
        guard variants.count < bounds.names else {
            exceeded = .variants
            return nil
        }
        variants.append((scale, format))
        variantNumbers[name] = UInt16(variants.count - 1)
        return UInt16(variants.count - 1)
    }

    func resourceNumber(_ name: ResourceName) -> UInt64? {
        if let number = resources[name] { return number }
        guard nextResource < TableBounds.resources else {
            exceeded = .resources
            return nil
        }
        defer { nextResource += 1 }
        resources[name] = nextResource
        resourceNames[nextResource] = name
        return nextResource
    }
}

// What there is room for.
extension Tables {
    /// Whether there is room for one more entry with its blob, after some that are still to be entered, and for its names if
    /// they are new; `false` means that ``bound(beyond:_:needsEntry:needsBlob:)`` is to be asked.
    @inline(__always)
    func hasRoom(after pending: Int, isNamed: Bool) -> Bool {
        let used = Int(max(entries.count, blobs.count))
        return used &+ pending < bounds.slots && (isNamed || hasRoomForNames(after: pending))
    }

    private func hasRoomForNames(after pending: Int) -> Bool {
        max(sources.count, variants.count) &+ pending < bounds.names
            && nextResource &+ UInt64(pending) < TableBounds.resources
    }

    /// What keeps a key from being entered, if something does.
    func bound(beyond key: TileKey, _ packed: PackedKey?, needsEntry: Bool, needsBlob: Bool) -> TableBound? {
        if needsEntry, entries.count >= bounds.slots, freeEntry == noSlot { return .entries }
        if needsBlob, blobs.count >= bounds.slots, freeBlob == noSlot { return .blobs }
        if packed != nil { return nil }
        if sourceNumbers[key.source.description] == nil, sources.count >= bounds.names { return .sources }
        switch key.address {
        case .tile(let tile):
            return variant(tile.scale, tile.format) == nil && variants.count >= bounds.names ? .variants : nil
        case .resource: return nextResource >= TableBounds.resources ? .resources : nil
        }
    }

    /// Whether a source has a number, or can be given one.
    func hasRoom(for source: SourceName) -> Bool {
        sourceNumbers[source.description] != nil || sources.count < bounds.names
    }
}
