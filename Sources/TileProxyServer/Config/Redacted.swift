/// Texts of the configuration as messages may repeat them.
enum Redacted {
    /// A text without what may be secret in a URL: its user and password, its query and its fragment.
    ///
    /// Works on texts that are no URLs too, since those are what messages are about: everything between the start of an
    /// authority, or of a value, and the last `@` is left out.
    static func text(_ text: String) -> String {
        var shown = text[...]
        var end = ""
        if let at = text.lastIndex(of: "@") {
            let start =
                text.firstRange(of: "://")?.upperBound ?? text.firstIndex(of: "=").map { text.index(after: $0) }
                ?? text.startIndex
            let rest = text[at...].prefix { $0 != "?" && $0 != "#" }
            return start <= at ? text[..<start] + "…" + rest : "…" + rest
        }
        if let mark = text.firstIndex(where: { $0 == "?" || $0 == "#" }) {
            shown = text[...mark]
            end = "…"
        }
        return shown + end
    }
}
