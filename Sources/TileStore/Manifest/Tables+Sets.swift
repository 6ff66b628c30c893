// What responses share: sets of fields, each with a number that the journal defines.
extension Tables {
    /// The slot of a set by its number, defining it if asked; `nil` if it was never defined.
    @inline(__always)
    func setSlot(_ number: UInt32) -> UInt32? {
        if lastSet.number == UInt64(number) { return lastSet.slot }
        guard let slot = setSlots[number] else { return nil }
        lastSet = (UInt64(number), slot)
        return slot
    }

    /// Counts an entry that has a set, or no longer has it.
    @inline(__always)
    func countSet(_ slot: UInt32, by change: Int) {
        sets[Int(slot)]?.uses += change
        if marksSets { changedSets.insert(slot) }
    }

    func define(_ number: UInt32, _ fields: ResponseFields, current: Bool) {
        let definedIn = current ? generation + 1 : 0
        lastSet = (.max, 0)
        if let slot = setSlots[number] {
            // Only where a definition was damaged, and read by some before that, can a number in use get other fields.
            if let old = sets[Int(slot)], old.uses > 0, old.fields != fields, moveSet(slot) {
                return define(number, fields, current: current)
            }
            let old = sets[Int(slot)]
            // The number no longer stands for the former fields.
            if let old, old.fields != fields, setNumbers[old.fields] == number { setNumbers[old.fields] = nil }
            let latest = old?.fields == fields ? max(old?.definedIn ?? 0, definedIn) : definedIn
            sets[Int(slot)] = SharedSet(number: number, fields: fields, uses: old?.uses ?? 0, definedIn: latest)
            if marksSets { changedSets.insert(slot) }
        } else {
            let slot = freeSets.popLast() ?? UInt32(sets.count)
            if Int(slot) == sets.count { sets.append(nil) }
            sets[Int(slot)] = SharedSet(number: number, fields: fields, uses: 0, definedIn: definedIn)
            setSlots[number] = slot
            if marksSets { changedSets.insert(slot) }
        }
        setNumbers[fields] = number
        // `TableBounds.sets` is no number: it says that all have been given out.
        nextSet = max(nextSet, min(number, TableBounds.sets - 1) + 1)
    }

    /// Gives a set another number, so that the entries that have it keep their fields; `false` if there is none left.
    ///
    /// Far above the numbers that anybody gives out: lines of others may refer to those.
    private func moveSet(_ slot: UInt32) -> Bool {
        guard let old = sets[Int(slot)], nextSet < TableBounds.sets - (1 << 21) else { return false }
        var other = max(nextSet + (1 << 20), movedSet) + 1
        // Those of an image that was taken over.
        while setSlots[other] != nil, other < TableBounds.sets { other += 1 }
        guard other < TableBounds.sets else { return false }
        movedSet = other
        setSlots[old.number] = nil
        setSlots[other] = slot
        if setNumbers[old.fields] == old.number { setNumbers[old.fields] = other }
        sets[Int(slot)] = SharedSet(number: other, fields: old.fields, uses: old.uses, definedIn: 0)
        if marksSets { changedSets.insert(slot) }
        return true
    }

    /// The number under which equal fields were defined in this generation's journal.
    func definedSet(_ fields: ResponseFields) -> UInt32? {
        guard let number = setNumbers[fields], let slot = setSlots[number], let set = sets[Int(slot)],
            set.definedIn == generation + 1
        else { return nil }
        return number
    }

    /// A number for fields that have none; `nil` if all are in use.
    ///
    /// - Parameters:
    ///   - last: The highest number that was given out and is not in the tables yet.
    ///   - pending: All such numbers.
    func freeSetNumber(after last: UInt32, _ pending: () -> Set<UInt32>) -> UInt32? {
        let next = max(nextSet, last + 1)
        if next < TableBounds.sets { return next }
        // All numbers have been given out once, which takes years. Those of sets that were forgotten when a journal began are
        // free: nothing from there on refers to them.
        let taken = pending()
        for _ in 0...(setSlots.count + taken.count) {
            reusedSet = reusedSet + 1 < TableBounds.sets ? reusedSet + 1 : 1
            if setSlots[reusedSet] == nil, !taken.contains(reusedSet) { return reusedSet }
        }
        return nil
    }

    /// The journal goes on in a new file: sets must be defined again before they are referred to, unused ones are forgotten.
    func startGeneration(_ generation: UInt64) {
        self.generation = generation
        lastSet = (.max, 0)
        for slot in sets.indices {
            guard let set = sets[slot], set.uses == 0 else { continue }
            setSlots[set.number] = nil
            if setNumbers[set.fields] == set.number { setNumbers[set.fields] = nil }
            sets[slot] = nil
            if marksSets { changedSets.insert(UInt32(slot)) }
            freeSets.append(UInt32(slot))
        }
    }
}
