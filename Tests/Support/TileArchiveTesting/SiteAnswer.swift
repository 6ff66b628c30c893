package import Foundation
package import HTTPTypes

/// What a server in memory answers.
package struct SiteAnswer: Sendable {
    package var status = 200
    package var fields: HTTPFields = [:]
    package var body = Data()

    package init(status: Int = 200, fields: HTTPFields = [:], body: Data = Data()) {
        (self.status, self.fields, self.body) = (status, fields, body)
    }
}

/// Bodies that pass for pictures.
package enum TestPicture {
    /// Eight bytes of PNG and a text, which is enough to be believed.
    package static func png(_ text: String) -> Data {
        Data([0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]) + Data(text.utf8)
    }
}
