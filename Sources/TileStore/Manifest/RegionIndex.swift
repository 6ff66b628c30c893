/// A region's rectangles by zoom and row, so that asking for one tile does not look at them all.
struct RegionIndex {
    private struct Zoom {
        var spans: [TileSpan]
        /// The greatest last row of the rectangles up to each place.
        var deepest: [Int]
    }
    private var zooms: [Int: Zoom] = [:]

    init(_ region: PinnedRegion) {
        for (zoom, spans) in Dictionary(grouping: region.spans, by: \.zoom) {
            let sorted = spans.sorted { $0.rows.lowerBound < $1.rows.lowerBound }
            var deepest: [Int] = []
            for span in sorted { deepest.append(max(deepest.last ?? 0, span.rows.upperBound)) }
            zooms[zoom] = Zoom(spans: sorted, deepest: deepest)
        }
    }

    func contains(z: Int, x: Int, y: Int) -> Bool {
        guard let zoom = zooms[z] else { return false }
        var (low, high) = (0, zoom.spans.count)
        while low < high {
            let middle = (low + high) / 2
            if zoom.spans[middle].rows.lowerBound <= y { low = middle + 1 } else { high = middle }
        }
        var at = low - 1
        while at >= 0, zoom.deepest[at] >= y {
            if zoom.spans[at].contains(z: z, x: x, y: y) { return true }
            at -= 1
        }
        return false
    }
}
