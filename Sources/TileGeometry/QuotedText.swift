/// A value from outside as part of a message: bounded, with control characters made visible.
package func quoted(_ text: String) -> String {
    let shown = text.unicodeScalars.prefix(80).map {
        $0.value < 32 || $0.value == 127 ? "\\u{\(String($0.value, radix: 16))}" : String($0)
    }
    return "\"" + shown.joined() + (text.unicodeScalars.count > 80 ? "…" : "") + "\""
}
