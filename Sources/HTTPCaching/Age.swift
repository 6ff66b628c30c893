package import HTTPTypes

/// How old a response is (RFC 9111 §4.2.3).
package enum Age {
    /// The number in an `Age` field, at most 2³¹; `nil` without a usable one.
    ///
    /// Of a list, the first member counts; one that is negative, fractional or no number is ignored (RFC 9111 §5.1).
    package static func value(in fields: HTTPFields) -> Int? {
        guard let text = fields.first(.age) else { return nil }
        let bytes = Array(text.utf8)
        let end = bytes.firstIndex(of: UInt8(ascii: ",")) ?? bytes.endIndex
        return bytes[..<end].trimmed.deltaSeconds
    }

    /// The `corrected_initial_age`: how old a response was when it had been received, from 0 to 2³¹ seconds.
    ///
    /// - Parameters:
    ///   - age: The `Age` field's number.
    ///   - date: The `Date` field; without one the response is taken to be made as it was received. One in the future
    ///     (a skewed clock) counts as no age.
    ///   - requestedAt: When the request was sent.
    ///   - receivedAt: When the response was received; before `requestedAt` (a clock set back) counts as no delay.
    package static func initial(
        age: Int?, date: HTTPDate?, requestedAt: HTTPDate, receivedAt: HTTPDate
    ) -> Int {
        let apparent = date.map { max(0, receivedAt.seconds(since: $0)) } ?? 0
        let delay = DeltaSeconds.clamp(receivedAt.seconds(since: requestedAt))
        let corrected = DeltaSeconds.clamp(age ?? 0) + delay
        return DeltaSeconds.clamp(max(apparent, corrected))
    }
}

extension StoredFreshness {
    /// The `current_age` in seconds, from 0 to 2³¹: what the `Age` field of a reused response says (RFC 9111 §5.1).
    package func age(at now: HTTPDate) -> Int {
        // Both are below 2³¹ before they are added.
        DeltaSeconds.clamp(DeltaSeconds.clamp(initialAge) + DeltaSeconds.clamp(now.seconds(since: storedAt)))
    }
}
