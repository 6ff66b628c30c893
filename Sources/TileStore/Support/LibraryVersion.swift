/// The version of this library and its programs, in one place.
package enum LibraryVersion {
    /// As in the changelog.
    package static let text = "0.2.0"
}
