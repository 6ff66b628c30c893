import ArgumentParser
import TileStore

/// SELECT: which entries a command means.
///
/// Conditions narrow each other.
struct SelectOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp("Only entries of this source.", valueName: "name"),
        transform: ArgumentValues.source)
    var source: SourceName?

    @Option(
        help: ArgumentHelp("Only tiles of these zooms: 7 or 0-7.", valueName: "zooms"),
        transform: ArgumentValues.zooms)
    var zoom: ClosedRange<Int>?

    // Unconditional, because a box in the west begins with a minus.
    @Option(
        parsing: .unconditional,
        help: ArgumentHelp(
            "Only tiles that this box touches, in degrees; west > east crosses the antimeridian.",
            valueName: "west,south,east,north"),
        transform: ArgumentValues.box)
    var bbox: GeoBox?

    @Flag(help: "Only entries that are stale.")
    var stale = false

    @Option(
        help: ArgumentHelp("Only entries not used for so long: 30d, 12h, 90s.", valueName: "age"),
        transform: ArgumentValues.age)
    var unusedFor: Int?

    @Option(
        help: ArgumentHelp(
            "Only this entry: source/z/x/y[@2x][.ext] or source:path. Repeatable.", valueName: "key"),
        transform: ArgumentValues.key)
    var key: [TileKey] = []

    /// Whether no condition is given.
    var isEmpty: Bool {
        source == nil && zoom == nil && bbox == nil && !stale && unusedFor == nil && key.isEmpty
    }

    /// Whether no other condition than a source is given.
    var namesOnlySource: Bool {
        var others = self
        others.source = nil
        return others.isEmpty
    }

    /// What to say where no entry is selected.
    func nothingSelected(in store: TileStore) throws -> String {
        if let source, let complaint = try store.complaint(about: source) { return complaint }
        return isEmpty ? "the cache has no entries" : "no entry is selected"
    }

    /// The same for the store.
    var selection: EntrySelection {
        var selection = EntrySelection()
        selection.source = source
        selection.zooms = zoom
        selection.box = bbox
        selection.stale = stale
        selection.unusedFor = unusedFor
        selection.keys = key.isEmpty ? nil : Set(key)
        return selection
    }
}

/// SELECT for a command that changes what it selects, so that everything is only ever meant when it is said.
struct ExplicitSelectOptions: ParsableArguments {
    @OptionGroup(title: "Selection")
    var select: SelectOptions

    @OptionGroup(title: "Selection")
    var list: ListOptions

    @Flag(help: "All entries (instead of a selection).")
    var all = false

    private var isEmpty: Bool { select.isEmpty && list.list == nil }

    func validate() throws {
        if isEmpty, !all {
            throw ValidationError(
                "no entries are selected: narrow them down with --source, --zoom, --bbox, --stale, --unused-for, --key or "
                    + "--list, or say --all")
        }
        if all, !isEmpty {
            throw ValidationError("--all and a selection exclude each other: leave one of them out")
        }
    }

    /// What to say where no entry is selected.
    func nothingSelected(in store: TileStore) throws -> String {
        // A list alone is a selection.
        try select.isEmpty && list.list != nil ? "no entry is selected" : select.nothingSelected(in: store)
    }

    /// The same for the store; reads the list, if there is one.
    func selection() throws -> EntrySelection {
        var selection = select.selection
        selection.tiles = try list.tiles(of: select.source)
        return selection
    }
}
