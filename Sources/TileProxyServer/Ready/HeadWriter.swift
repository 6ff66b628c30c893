import HTTPCaching
import HTTPWire

/// Writes text into a buffer of fixed size; what does not fit is left out.
struct HeadWriter {
    private let room: UnsafeMutableRawBufferPointer
    private(set) var count = 0

    @inline(__always)
    init(_ room: UnsafeMutableRawBufferPointer) { self.room = room }

    @inline(__always)
    mutating func write(_ bytes: UnsafeRawBufferPointer) {
        guard let from = bytes.baseAddress, let to = room.baseAddress, room.count - count >= bytes.count else { return }
        (to + count).copyMemory(from: from, byteCount: bytes.count)
        count &+= bytes.count
    }

    @inline(__always)
    mutating func write(_ text: StaticString) {
        write(UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
    }

    /// Writes a number that is not negative.
    @inline(__always)
    mutating func write(_ number: Int) {
        var (rest, digits) = (number, 1)
        while rest > 9 { (rest, digits) = (rest / 10, digits &+ 1) }
        guard number >= 0, room.count - count >= digits else { return }
        rest = number
        var at = count &+ digits
        count = at
        repeat {
            at &-= 1
            room[at] = UInt8(truncatingIfNeeded: 48 &+ rest % 10)
            rest /= 10
        } while at > count &- digits
    }

    /// Writes a date as ``HTTPDate/description`` does, without making a string.
    @inline(__always)
    mutating func write(_ date: HTTPDate) {
        guard room.count - count >= 29 else { return }
        guard date.seconds >= 0, date.seconds < 253_402_300_800 else {
            var text = date.description
            text.withUTF8 { write(UnsafeRawBufferPointer($0)) }
            return
        }
        let (day, second) = (Int(date.seconds) / 86400, Int(date.seconds) % 86400)
        // Days to year, month and day: Howard Hinnant's "civil from days", for years from 1970 on.
        let shifted = day &+ 719_468
        let era = shifted / 146_097
        let dayOfEra = shifted % 146_097
        let yearOfEra = (dayOfEra &- dayOfEra / 1460 &+ dayOfEra / 36524 &- dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra &- (365 &* yearOfEra &+ yearOfEra / 4 &- yearOfEra / 100)
        let shiftedMonth = (5 &* dayOfYear &+ 2) / 153
        let month = shiftedMonth < 10 ? shiftedMonth &+ 2 : shiftedMonth &- 10
        let year = yearOfEra &+ era &* 400 &+ (month <= 1 ? 1 : 0)
        write(Self.part(of: Self.weekdays, (day &+ 4) % 7, 3))
        write(", ")
        pair(dayOfYear &- (153 &* shiftedMonth &+ 2) / 5 &+ 1)
        write(Self.part(of: Self.months, month, 5))
        pair(year / 100)
        pair(year % 100)
        write(" ")
        pair(second / 3600)
        write(":")
        pair(second / 60 % 60)
        write(":")
        pair(second % 60)
        write(" GMT")
    }

    private static let weekdays: StaticString = "SunMonTueWedThuFriSat"
    private static let months: StaticString = " Jan  Feb  Mar  Apr  May  Jun  Jul  Aug  Sep  Oct  Nov  Dec "

    @inline(__always)
    private static func part(of names: StaticString, _ index: Int, _ length: Int) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: names.utf8Start + index &* length, count: length)
    }

    /// Writes two digits; there is room.
    @inline(__always)
    private mutating func pair(_ number: Int) {
        room[count] = UInt8(truncatingIfNeeded: 48 &+ number / 10)
        room[count &+ 1] = UInt8(truncatingIfNeeded: 48 &+ number % 10)
        count &+= 2
    }
}
