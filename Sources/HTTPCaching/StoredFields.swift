package import HTTPTypes

extension CachePolicy {
    /// The fields of a response that are to be stored.
    ///
    /// Left out (RFC 9111 §3.1): the fields of one connection (RFC 9110 §7.6.1) and those that `Connection` names, the
    /// `Proxy-*` fields, those that `no-cache="…"` names, in a shared cache also those that `private="…"` names, and
    /// `Age`, which is made anew on each use. Order and repetition are kept.
    ///
    /// Fields without which the bytes would be taken for something else (such as `Content-Encoding`) are never left
    /// out: a `Connection` that names one is in error (RFC 9110 §7.6.1), and a `no-cache` or `private` that names one is
    /// read as a directive for the whole response.
    package func fieldsToStore(_ fields: HTTPFields) -> HTTPFields {
        fieldsToStore(fields, directives(of: fields))
    }

    /// The same, where the directives have been read already.
    package func fieldsToStore(_ fields: HTTPFields, _ directives: Directives) -> HTTPFields {
        var dropped = connectionOptions(fields)
        let control = directives.cacheControl
        if stripsWhatNoCacheNames(control) { dropped.formUnion(control.noCache.fieldNames) }
        if kind == .shared { dropped.formUnion(control.private.fieldNames) }
        return fields.leavingOut { name in
            name == .age || isHopByHop(name) || (dropped.contains(name) && !isIndispensable(name))
        }
    }

    /// Whether a field says what the bytes are, or for how long and for whom.
    func isIndispensable(_ name: HTTPField.Name) -> Bool {
        indispensable.contains(name) || targetedFields.contains(name)
    }

    /// Whether `no-cache="…"` is obeyed by leaving out what it names; else it is one for the whole response.
    func stripsWhatNoCacheNames(_ control: CacheControl) -> Bool {
        if case .fields(let names) = control.noCache { !names.contains(where: isIndispensable) } else { false }
    }
}

extension HTTPFields {
    /// The fields to forward: all but those of one connection and those that `Connection` names (RFC 9110 §7.6.1).
    ///
    /// `TE`, `Trailer`, `Transfer-Encoding` and `Upgrade` are among those left out.
    package var withoutConnectionFields: HTTPFields {
        let named = connectionOptions(self)
        return leavingOut { isHopByHop($0) || (named.contains($0) && !indispensable.contains($0)) }
    }

    func leavingOut(_ drop: (HTTPField.Name) -> Bool) -> HTTPFields {
        var kept = HTTPFields()
        kept.reserveCapacity(count)
        for field in self where !drop(field.name) { kept.append(field) }
        return kept
    }
}

/// The fields that `Connection` names: all of them, however many.
///
/// The limit on a head's size bounds their number.
private func connectionOptions(_ fields: HTTPFields) -> Set<HTTPField.Name> {
    guard fields.contains(.connection) else { return [] }
    return Set(fields.members(of: .connection).compactMap { HTTPField.Name(String(decoding: $0, as: UTF8.self)) })
}

/// Fields that belong to one connection, or to a proxy and its client (RFC 9110 §7.6.1, RFC 9111 §3.1).
func isHopByHop(_ name: HTTPField.Name) -> Bool {
    switch name.canonicalName {
    case "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
        "proxy-authenticate", "proxy-authentication-info", "proxy-authorization":
        true
    default: false
    }
}

/// Fields that say what the bytes are, or for how long and for whom, in every cache.
let indispensable: Set<HTTPField.Name> = [
    .cacheControl, .contentEncoding, .contentLength, .contentRange, .contentType, .date, .expires, .vary,
]
