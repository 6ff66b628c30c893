/// What was found in a file that should hold a region's plan.
package enum FoundPlan: Sendable {
    /// A JSON object.
    case plan(String)
    /// The file cannot be read.
    case unreadable(StoreError)
}

// Plans for regions that are not complete: kept for a program above, which alone knows what they say.
extension TileStore {
    /// Pins a region, as ``pin(_:)`` does, and keeps a plan beside it, on the disk when this returns.
    ///
    /// - Parameter plan: A JSON object with at least one member, without line breaks, of at most 60,000 bytes.
    package func pin(_ region: PinnedRegion, plan: String) throws {
        let line = PlanFolder.line(plan)
        guard line.count <= PlanFolder.longest else {
            throw StoreError(
                .invalidValue,
                "the plan of region \(region.name) has \(line.count) bytes; \(PlanFolder.longest) are possible")
        }
        guard !isReadOnly else { return try pin(region) }
        let staged: String
        do throws(FileError) { staged = try blobs.staging.write(line, sync: true) } catch {
            throw StoreError(error, in: files.location)
        }
        do { try pin(region, stagedPlan: staged) } catch {
            blobs.staging.discard(staged)
            throw error
        }
    }

    /// The plans that there are, by the names of their files.
    ///
    /// A plan may be of a region that is not there any more: compare ``regions()``. Of those at most 256 are given.
    package func plans() throws -> [(file: String, found: FoundPlan)] {
        let folder = PlanFolder(files)
        let regions = try regions().map(\.name)
        do throws(FileError) {
            var plans: [(file: String, found: FoundPlan)] = []
            for name in try folder.names(of: regions) {
                do throws(FileError) {
                    switch try folder.read(name) {
                    case .absent: break
                    case .damaged:
                        let error = StoreError(
                            .damaged,
                            "\(files.location)/\(PlanFolder.folder)/\(name) cannot be read; download its region again, or remove the file"
                        )
                        plans.append((name, .unreadable(error)))
                    case .whole(let object): plans.append((name, .plan(object)))
                    }
                } catch {
                    plans.append((name, .unreadable(StoreError(error, in: files.location))))
                }
            }
            return plans
        } catch {
            throw StoreError(error, in: files.location)
        }
    }

    /// Whether a plan's file is that of a region.
    package func isPlan(_ file: String, of region: String) -> Bool { PlanFolder(files).isPlace(file, of: region) }

    /// Removes a region's plan, unless there is another one by now.
    package func removePlan(_ plan: String, of region: String) throws {
        try hold { ledger in
            // In a folder that has taken its place there is nothing of this one.
            guard let folder = try ledger.confirmFolder() else { return }
            let plans = PlanFolder(files)
            if try plans.plan(of: region) == plan { try plans.remove(region, folder) }
        }
    }
}
