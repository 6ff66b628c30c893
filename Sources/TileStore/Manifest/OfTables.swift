/// A value that means something only in the tables that gave it out: a packed key, a slot, the number of a name or of a set.
///
/// Whoever gives the tables' lock up may find other tables afterwards, in which the same numbers stand for other things. So
/// whatever is kept beyond the lock is kept in here, and is absent in other tables.
struct OfTables<Value> {
    /// ``Tables/number`` of those tables; 0 for none.
    ///
    /// Their address would not do: new tables may lie where old ones lay.
    private let tables: UInt64
    private var value: Value

    @inline(__always)
    init(_ value: Value, _ tables: Tables) {
        self.value = value
        self.tables = tables.number
    }

    private init(_ value: Value, number: UInt64) {
        self.value = value
        tables = number
    }

    /// A value of no tables.
    static func none(_ value: Value) -> OfTables { OfTables(value, number: 0) }

    @inline(__always)
    func isOf(_ tables: Tables) -> Bool { tables.number == self.tables }

    /// The value, if it is of these tables.
    @inline(__always)
    func value(in tables: Tables) -> Value? { isOf(tables) ? value : nil }

    /// Looks at the value, or changes it, in its place; `nil` if it is of other tables.
    @inline(__always)
    mutating func change<R>(in tables: Tables, _ body: (inout Value) -> R?) -> R? {
        isOf(tables) ? body(&value) : nil
    }

    /// Another value of the same tables.
    @inline(__always)
    func map<Other>(_ body: (Value) -> Other) -> OfTables<Other> { OfTables<Other>(body(value), number: tables) }
}

extension OfTables: Sendable where Value: Sendable {}
extension OfTables: Equatable where Value: Equatable {}
extension OfTables: Hashable where Value: Hashable {}
