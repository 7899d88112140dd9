package contract

// Capabilities is what an API key may send (contract 1.7). Limits of 0 and null are none.
type Capabilities struct {
	Client          string           `json:"client"` // name of the key
	ProductInstance string           `json:"productInstance"`
	Limits          IngestLimits     `json:"limits"`
	MeasureTypes    []AllowedType    `json:"measureTypes"` // empty: any of 1 to 64 characters A-Za-z0-9_.-
	Quality         AllowedRange     `json:"quality"`
	Detectors       AllowedDetectors `json:"detectors"`
}

// IngestLimits are the limits of batches.
type IngestLimits struct {
	RequestsPerSecond      float64 `json:"requestsPerSecond"`
	ItemsPerSecond         float64 `json:"itemsPerSecond"`
	ItemsPerBatch          int     `json:"itemsPerBatch"`     // later ones are rejected
	ItemsPerRequest        int     `json:"itemsPerRequest"`   // with more, the request is rejected
	CompressedBytes        int64   `json:"compressedBytes"`   // of a body
	DecompressedBytes      int64   `json:"decompressedBytes"` // of a body
	FutureToleranceSeconds float64 `json:"futureToleranceSeconds"`
	IdempotencySeconds     float64 `json:"idempotencySeconds"` // for which responses are remembered
}

// AllowedRange is a range of numbers.
type AllowedRange struct {
	Min *float64 `json:"min"`
	Max *float64 `json:"max"`
}

// AllowedType is a measure type with its range. A code that ends in * is the beginning of codes.
type AllowedType struct {
	Code string `json:"code"`
	AllowedRange
	Unit string `json:"unit,omitempty"`
}

// AllowedDetectors is a part of the registry of a product instance.
type AllowedDetectors struct {
	Version string   `json:"version"` // as in the header Registry-Version
	Count   int      `json:"count"`
	From    int      `json:"from"` // position of the first of Codes
	Codes   []string `json:"codes"`
	Next    int      `json:"next,omitempty"` // from of the next part; absent in the last one
}
