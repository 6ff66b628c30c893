package import HTTPTypes

/// The content codings that a body has, as its `Content-Encoding` says (RFC 9110 §8.4).
///
/// Servers also write there what is no coding: nothing, `identity`, a character set, a transfer encoding of mail. Taken
/// at its word, such a body could not be decoded, and would not be looked at for what it is.
package enum ContentCodings {
    /// The registered codings, with the aliases that RFC 9110 §8.4.1 allows.
    ///
    /// https://www.iana.org/assignments/http-parameters/http-parameters.xhtml#content-coding
    package static let registered: Set<String> = [
        "aes128gcm", "br", "compress", "dcb", "dcz", "deflate", "exi", "gzip", "pack200-gzip", "x-compress", "x-gzip",
        "zstd",
    ]

    /// What servers write that means no coding.
    package static let meaningless: Set<String> = [
        "", "identity", "none", "utf-8", "utf8", "utf-16", "us-ascii", "ascii", "iso-8859-1", "iso8859-1", "latin1",
        "windows-1252", "binary", "7bit", "8bit", "chunked",
    ]

    /// The codings of a field's value in the order in which they were applied, in lower case, without the meaningless.
    ///
    /// One that is not known stays: its body cannot be judged or decoded.
    package static func applied(_ value: String?) -> [String] {
        guard let value else { return [] }
        return value.split(separator: ",").compactMap { member in
            let name = member.filter { $0 != " " && $0 != "\t" && $0 != "\"" }.lowercased()
            return meaningless.contains(name) ? nil : name
        }
    }

    /// The field's value without what is meaningless; `nil` if nothing is left.
    package static func value(in fields: HTTPFields) -> String? {
        let codings = applied(fields[.contentEncoding])
        return codings.isEmpty ? nil : codings.joined(separator: ", ")
    }
}
