#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Sources, variants and resources, whose names stand for numbers in records.
///
/// They are few, and no number is given out twice. Not checked for overlapping access at run time, as ``Tables``.
final class TableNames {
    private struct ResourceName: Hashable {
        var source: UInt16
        var text: String
    }

    /// By their numbers.
    @exclusivity(unchecked) private(set) var sources: [SourceName] = []
    @exclusivity(unchecked) private(set) var variants: [(scale: Int, format: String?)] = [(1, nil)]
    @exclusivity(unchecked) private(set) var nextResource: UInt64 = 0
    @exclusivity(unchecked) private var sourceNumbers: [String: UInt16] = [:]
    @exclusivity(unchecked) private var variantNumbers: [String: UInt16] = [:]
    @exclusivity(unchecked) private var resources: [ResourceName: UInt64] = [:]
    @exclusivity(unchecked) private var resourceNames: [UInt64: ResourceName] = [:]
    private let bounds: TableBounds
    /// The bound that a name of a line went beyond.
    @exclusivity(unchecked) private(set) var exceeded: TableBound?
    // The names of the line before, and their numbers. A source's has at most 64 bytes.
    private let lastSource = UnsafeMutableRawPointer.allocate(byteCount: 64, alignment: 8)
    @exclusivity(unchecked) private var lastSourceLength = -1
    @exclusivity(unchecked) private var lastSourceNumber: UInt16 = 0
    @exclusivity(unchecked) private var lastVariantMark: (UInt64, UInt64) = (0, 0)
    @exclusivity(unchecked) private var lastVariantNumber: UInt16 = 0

    init(_ bounds: TableBounds) { self.bounds = bounds }

    deinit { lastSource.deallocate() }

    // MARK: Asking

    /// The number of a source; `nil` if it has none.
    @inline(__always)
    func source(_ name: String) -> UInt16? { sourceNumbers[name] }

    @inline(__always)
    func variant(_ scale: Int, _ format: String?) -> UInt16? {
        if scale == 1, format == nil { return 0 }
        return variantNumbers["\(scale).\(format ?? "")"]
    }

    /// The number of a line's source, which mostly is that of the line before; `nil` if it has none.
    func known(lineSource utf8: UnsafeRawBufferPointer) -> UInt16? {
        if let base = utf8.baseAddress, utf8.count == lastSourceLength, memcmp(base, lastSource, utf8.count) == 0 {
            return lastSourceNumber
        }
        guard let number = source(String(decoding: utf8, as: UTF8.self)) else { return nil }
        note(utf8, number)
        return number
    }

    /// The same of a variant.
    func known(variant scale: Int, _ format: UnsafeRawBufferPointer?) -> UInt16? {
        if scale == 1, format == nil { return 0 }
        let mark = Self.mark(scale, format)
        if let mark, mark == lastVariantMark { return lastVariantNumber }
        guard let number = variant(scale, format.map { String(decoding: $0, as: UTF8.self) }) else { return nil }
        if let mark { (lastVariantMark, lastVariantNumber) = (mark, number) }
        return number
    }

    func resource(_ source: UInt16, _ text: String) -> UInt64? {
        resources[ResourceName(source: source, text: text)]
    }

    /// The name of a resource and its source's number; `nil` if its entry is gone, and the name with it.
    func resource(_ number: UInt64) -> (source: UInt16, text: String)? {
        resourceNames[number].map { ($0.source, $0.text) }
    }

    /// Whether there is no room for one more source, or for one more variant.
    var areFull: Bool { max(sources.count, variants.count) >= bounds.names }

    /// Whether there is room for so many new names of each kind, and one more.
    func hasRoom(after pending: Int) -> Bool {
        max(sources.count, variants.count) &+ pending < bounds.names
            && nextResource &+ UInt64(pending) < TableBounds.resources
    }

    /// What keeps a key's names from being entered, if something does.
    func bound(beyond key: TileKey) -> TableBound? {
        if !hasRoom(for: key.source) { return .sources }
        switch key.address {
        case .tile(let tile):
            return variant(tile.scale, tile.format) == nil && variants.count >= bounds.names ? .variants : nil
        case .resource: return nextResource >= TableBounds.resources ? .resources : nil
        }
    }

    /// Whether a source has a number, or can be given one.
    func hasRoom(for name: SourceName) -> Bool {
        source(name.description) != nil || sources.count < bounds.names
    }

    /// Whether each of some sources has a number, or can be given one.
    func hasRoom(for names: Set<SourceName>) -> Bool {
        let new = names.count { source($0.description) == nil }
        return new == 0 || sources.count + new <= bounds.names
    }

    // MARK: Entering

    func enter(source utf8: UnsafeRawBufferPointer) -> UInt16? {
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

    /// The same for a line, which mostly has the source of the line before.
    @inline(__always)
    func enter(lineSource utf8: UnsafeRawBufferPointer) -> UInt16? {
        guard let base = utf8.baseAddress, utf8.count == lastSourceLength, memcmp(base, lastSource, utf8.count) == 0
        else { return enter(otherSource: utf8) }
        return lastSourceNumber
    }

    private func enter(otherSource utf8: UnsafeRawBufferPointer) -> UInt16? {
        guard let number = enter(source: utf8) else { return nil }
        note(utf8, number)
        return number
    }

    /// Keeps the number of a source, whose name has at most 64 bytes, for the next line.
    private func note(_ source: UnsafeRawBufferPointer, _ number: UInt16) {
        guard let base = source.baseAddress else { return }
        lastSource.copyMemory(from: base, byteCount: source.count)
        (lastSourceLength, lastSourceNumber) = (source.count, number)
    }

    @inline(__always)
    func enter(variant scale: Int, _ format: UnsafeRawBufferPointer?) -> UInt16? {
        if scale == 1, format == nil { return 0 }
        return enter(otherVariant: scale, format)
    }

    private func enter(otherVariant scale: Int, _ format: UnsafeRawBufferPointer?) -> UInt16? {
        let mark = Self.mark(scale, format)
        if let mark, mark == lastVariantMark { return lastVariantNumber }
        guard let number = enter(variant: scale, named: format.map { String(decoding: $0, as: UTF8.self) }) else {
            return nil
        }
        if let mark { (lastVariantMark, lastVariantNumber) = (mark, number) }
        return number
    }

    /// Formats have 12 bytes at most: with the scale they fit into two words, which say whether it is the last one again.
    private static func mark(_ scale: Int, _ format: UnsafeRawBufferPointer?) -> (UInt64, UInt64)? {
        guard let format, format.count <= 12 else { return nil }
        var mark: (UInt64, UInt64) = (0, UInt64(truncatingIfNeeded: scale) << 56)
        withUnsafeMutableBytes(of: &mark) { $0.copyMemory(from: format) }
        return mark
    }

    private func enter(variant scale: Int, named format: String?) -> UInt16? {
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

    func enter(resource text: String, _ source: UInt16) -> UInt64? {
        let name = ResourceName(source: source, text: text)
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

    func remove(resource number: UInt64) {
        if let name = resourceNames.removeValue(forKey: number) { resources[name] = nil }
    }

    // MARK: Images

    /// Enters the names of an image; `false` if they cannot have had their numbers.
    func restore(_ state: ImageState) -> Bool {
        nextResource = state.nextResource
        for source in state.sources {
            let number = Array(source.utf8).withUnsafeBytes { enter(source: $0) }
            guard number == UInt16(sources.count - 1) else { return false }
        }
        for variant in state.variants.dropFirst() {
            guard enter(variant: variant.scale, named: variant.format) == UInt16(variants.count - 1) else {
                return false
            }
        }
        return true
    }

    /// Gives a resource the number that it has in an image.
    func restore(resource number: UInt64, _ source: UInt16, _ text: String) {
        let name = ResourceName(source: source, text: text)
        resourceNames[number] = name
        resources[name] = number
    }
}
