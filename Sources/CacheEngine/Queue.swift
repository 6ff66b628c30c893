/// First in, first out, at a constant cost; what was taken out is let go at once.
package struct Queue<Element> {
    private var items: [Element?] = []
    private var head = 0

    package init() {}

    package var count: Int { items.count - head }

    package var first: Element? { head < items.count ? items[head] : nil }

    package mutating func append(_ item: Element) { items.append(item) }

    package mutating func popFirst() -> Element? {
        guard head < items.count else { return nil }
        defer {
            items[head] = nil
            head += 1
            if head == items.count {
                items.removeAll(keepingCapacity: true)
                head = 0
            } else if head >= 1024, head * 2 >= items.count {
                items.removeFirst(head)
                head = 0
            }
        }
        return items[head]
    }
}
