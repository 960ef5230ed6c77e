package plan

import _ "embed"

//go:embed schema/document.json
var schema []byte

// Schema returns the JSON Schema of documents, for editors. It knows the form of
// one document; [Decode] and [Catalog.Check] know more.
func Schema() []byte { return append([]byte(nil), schema...) }
