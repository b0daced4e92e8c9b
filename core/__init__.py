"""The method: pure functions on records and arrays, and the engines."""
