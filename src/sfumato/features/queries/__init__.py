"""Price and ask queries; answers and history."""
