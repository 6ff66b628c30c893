#if canImport(UIKit) && canImport(MapKit) && !os(watchOS)
import MapKit
import UIKit

/// The demo in UIKit: the map, and a row of buttons below it.
final class DemoViewController: UIViewController {
    private let map = DemoMap()
    private let progress = UIProgressView(progressViewStyle: .default)
    private let message = UILabel()

    override func viewDidLoad() {
        super.viewDidLoad()
        do { try map.start() } catch { message.text = "\(error)" }
        map.onProgress = { [weak self] share, text in
            self?.progress.progress = Float(share)
            if let text { self?.message.text = text }
        }
        let buttons = UIStackView(arrangedSubviews: [
            button("Day/Night") { $0.style = $0.style == .day ? .night : .day },
            button("Offline") { $0.isOffline.toggle() },
            button("Grid") { $0.showsGrid.toggle() },
            button("Download") { map in Task { await map.downloadVisible() } },
            button("Clear") { map in Task { try? await map.clear() } },
        ])
        buttons.distribution = .fillEqually
        let stack = UIStackView(arrangedSubviews: [map.view, progress, message, buttons])
        stack.axis = .vertical
        stack.frame = view.bounds
        stack.autoresizingMask = [.flexibleWidth, .flexibleHeight]
        view.addSubview(stack)
    }

    private func button(_ title: String, _ action: @escaping @MainActor (DemoMap) -> Void) -> UIButton {
        let button = UIButton(type: .system)
        button.setTitle(title, for: .normal)
        button.addAction(UIAction { [map] _ in action(map) }, for: .primaryActionTriggered)
        return button
    }
}
#endif
