// What responses share: sets of fields, each with a number that the journal defines.
extension Tables {
    /// The slot of a set by its number, defining it if asked; `nil` if it was never defined.
    @inline(__always)
    func setSlot(_ number: UInt32) -> UInt32? {
        if lastSet.number == number { return lastSet.slot }
        guard let slot = setSlots[number] else { return nil }
        lastSet = (number, slot)
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
        lastSet = (0, 0)
        if let slot = setSlots[number] {
            let old = sets[Int(slot)]
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
        nextSet = max(nextSet, number &+ 1)
    }

    /// The number under which equal fields were defined in this generation's journal.
    func definedSet(_ fields: ResponseFields) -> UInt32? {
        guard let number = setNumbers[fields], let slot = setSlots[number], let set = sets[Int(slot)],
            set.definedIn == generation + 1
        else { return nil }
        return number
    }

    /// The journal goes on in a new file: sets must be defined again before they are referred to, unused ones are forgotten.
    func startGeneration(_ generation: UInt64) {
        self.generation = generation
        lastSet = (0, 0)
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
