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

    package func leavingOut(_ drop: (HTTPField.Name) -> Bool) -> HTTPFields {
        // Mostly there is nothing to leave out, or a name or two: to remove them costs less than to append all others.
        var (kept, index, removed) = (self, 0, 0)
        while index < kept.count {
            let name = kept[index].name
            guard drop(name) else {
                index += 1
                continue
            }
            guard removed < 4 else { return HTTPFields(kept.filter { !drop($0.name) }) }
            kept[name] = nil
            removed += 1
        }
        return kept
    }
}

/// The fields that `Connection` names: all of them, however many.
///
/// The limit on a head's size bounds their number.
private func connectionOptions(_ fields: HTTPFields) -> Set<HTTPField.Name> {
    guard let first = fields.first(.connection) else { return [] }
    // What most servers send, and what is left out anyhow.
    if first.utf8.count == 10, first.utf8.equalsIgnoringCase("keep-alive"),
        fields.count(where: { $0.name == .connection }) == 1
    {
        return []
    }
    return Set(fields.members(of: .connection).compactMap { HTTPField.Name(String(decoding: $0, as: UTF8.self)) })
}

/// Fields that belong to one connection, or to a proxy and its client (RFC 9110 §7.6.1, RFC 9111 §3.1).
func isHopByHop(_ name: HTTPField.Name) -> Bool {
    let name = name.canonicalName
    // Most names have another length than these.
    return switch name.utf8.count {
    case 2: name == "te"
    case 7: name == "trailer" || name == "upgrade"
    case 10: name == "connection" || name == "keep-alive"
    case 16: name == "proxy-connection"
    case 17: name == "transfer-encoding"
    case 18: name == "proxy-authenticate"
    case 19: name == "proxy-authorization"
    case 25: name == "proxy-authentication-info"
    default: false
    }
}

/// Fields that say what the bytes are, or for how long and for whom, in every cache.
let indispensable: Set<HTTPField.Name> = [
    .cacheControl, .contentEncoding, .contentLength, .contentRange, .contentType, .date, .expires, .vary,
]
