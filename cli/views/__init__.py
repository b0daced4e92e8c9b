"""One file a view of `blend show`: a document for --json, a drawing for a person."""
