#if canImport(Darwin) && canImport(SwiftUI) && canImport(MapKit) && !os(watchOS)
import MapKit
import SwiftUI

/// The demo in SwiftUI: the map, with controls below it.
struct DemoView: View {
    @StateObject private var model = DemoModel()

    var body: some View {
        VStack {
            DemoMapHost(map: model.map)
            ProgressView(value: model.share)
            Text(model.message).font(.footnote)
            HStack {
                Picker("Map", selection: $model.style) {
                    ForEach(DemoMap.Style.allCases, id: \.self) { Text($0.rawValue) }
                }
                Toggle("Offline", isOn: $model.isOffline)
                Toggle("Grid", isOn: $model.showsGrid)
            }
            HStack {
                Button("Download") { Task { await model.map.downloadVisible() } }
                Button("Pause") { model.map.pause() }
                Button("Go on") { model.map.resume() }
                Button("Failed again") { model.map.retryFailed() }
                Button("Clear") { Task { try? await model.map.clear() } }
            }
        }
        .padding()
    }
}

/// What the view shows of the map.
@MainActor
final class DemoModel: ObservableObject {
    let map = DemoMap()
    @Published var share = 0.0
    @Published var message = ""
    @Published var style = DemoMap.Style.day { didSet { map.style = style } }
    @Published var isOffline = false { didSet { map.isOffline = isOffline } }
    @Published var showsGrid = false { didSet { map.showsGrid = showsGrid } }

    init() {
        do { try map.start() } catch { message = "\(error)" }
        map.onProgress = { [weak self] share, text in
            self?.share = share
            if let text { self?.message = text }
        }
    }
}

#if canImport(UIKit)
struct DemoMapHost: UIViewRepresentable {
    let map: DemoMap
    func makeUIView(context: Context) -> MKMapView { map.view }
    func updateUIView(_ view: MKMapView, context: Context) {}
}
#else
struct DemoMapHost: NSViewRepresentable {
    let map: DemoMap
    func makeNSView(context: Context) -> MKMapView { map.view }
    func updateNSView(_ view: MKMapView, context: Context) {}
}
#endif
#endif
