/// What a proxy has done with its fleet's bucket since it was started.
package struct SharedFigures: Hashable, Sendable {
    /// Looks that brought a tile, or that there is none.
    package var hits = 0
    /// Looks that brought nothing: no object, or a stale one.
    package var misses = 0
    /// Looks and writes that failed, and objects that were not what they should be.
    package var errors = 0
    /// Looks that were not begun: the bucket is left alone.
    package var skipped = 0
    /// Objects written.
    package var stores = 0
    /// Writes that were given up: there was no room, no time, or the bucket did not take them.
    package var dropped = 0
    /// Writes that wait, or are under way.
    package var waiting = 0
    /// Looks that were answered, and how long all of them took together, in seconds.
    package var answers = 0
    package var seconds = 0.0
    /// Whether the bucket is left alone.
    package var isOpen = false

    package init() {}
}
