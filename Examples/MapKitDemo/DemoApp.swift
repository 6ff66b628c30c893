#if canImport(Darwin) && canImport(SwiftUI) && canImport(MapKit) && !os(watchOS)
import SwiftUI

@main
struct DemoApp: App {
    var body: some Scene {
        WindowGroup { DemoView() }
    }
}
#endif
