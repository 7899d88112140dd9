package contract

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
)

// Paths of the services, below the base path (contract 1, 2 and 3).
const (
	IngestPath       = "/dataprovider/ingestion/v1/detectors/data/ingest"
	BatchesPath      = "/dataprovider/ingestion/v1/detectors/data/batches/" // and a Batch-Id
	CapabilitiesPath = "/dataprovider/ingestion/v1/detectors/capabilities"
	HealthPath       = "/dataprovider/ingestion/v1/detectors/health"
	ForecastPath     = "/mlf/v1/forecast/realtime"
	RoutingPath      = "/xroute/ws/XRoute"
	DocsPath         = "/docs" // the OpenAPI document as a page (contract 6.5)
)

// Measurement is an item of a batch (contract 5.1), as a client builds it.
type Measurement struct {
	DetectorCode    string      `json:"detectorCode"`
	MeasureTypeCode string      `json:"measureTypeCode"`
	TimestampFrom   time.Time   `json:"timestampFrom"`
	TimestampTo     time.Time   `json:"timestampTo"`
	Value           json.Number `json:"value"`
	Quality         json.Number `json:"quality,omitempty"`
}

// AppendJSON appends the measurement as a JSON object, with the times in UTC. It is much faster
// than encoding/json, which would also check the numbers.
func (m *Measurement) AppendJSON(dst []byte) []byte {
	dst = appendString(append(dst, `{"detectorCode":`...), m.DetectorCode)
	dst = appendString(append(dst, `,"measureTypeCode":`...), m.MeasureTypeCode)
	dst = m.TimestampFrom.UTC().AppendFormat(append(dst, `,"timestampFrom":"`...), time.RFC3339Nano)
	dst = m.TimestampTo.UTC().AppendFormat(append(dst, `","timestampTo":"`...), time.RFC3339Nano)
	dst = append(append(dst, `","value":`...), m.Value...)
	if m.Quality != "" {
		dst = append(append(dst, `,"quality":`...), m.Quality...)
	}
	return append(dst, '}')
}

// appendString appends text as a JSON string.
func appendString(dst []byte, text string) []byte {
	if !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' || r > '~' }) {
		return append(append(append(dst, '"'), text...), '"')
	}
	var quoted bytes.Buffer
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // cannot fail
	return append(dst, bytes.TrimSuffix(quoted.Bytes(), []byte("\n"))...)
}

// Batch returns a request body with the given items, each a JSON value.
func Batch[T string | []byte](items ...T) []byte {
	body := []byte(`{"measurements":[`)
	for i, item := range items {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, item...)
	}
	return append(body, `]}`...)
}

// Result is the response to an accepted batch, IngestResult (contract 5.2).
type Result struct {
	Accepted   int         `json:"accepted"`
	Rejected   int         `json:"rejected"`
	Rejections []Rejection `json:"rejections"`
}

// Rejection is a rejected item of a batch.
type Rejection struct {
	Index int       `json:"index"`
	Error ItemError `json:"error"`
}

// ItemError is the reason for rejecting an item.
type ItemError struct {
	Description string `json:"description"`
	ErrorCode   string `json:"errorCode"`
	Parameter   string `json:"parameter"`
}

// BatchStatus is what became of a batch (contract 1.9).
type BatchStatus struct {
	BatchID    string       `json:"batchId"`
	ReceivedAt time.Time    `json:"receivedAt"`
	Accepted   int          `json:"accepted"`
	Final      bool         `json:"final"`
	Archived   *StoreStatus `json:"archived,omitempty"`  // nil: there is no archive
	Forwarded  *StoreStatus `json:"forwarded,omitempty"` // nil: nothing is forwarded
}

// StoreStatus says how many items of a batch a store has.
type StoreStatus struct {
	Items        int        `json:"items"`
	DeadLettered int        `json:"deadLettered"`
	At           *time.Time `json:"at,omitempty"` // of the last change; nil: none yet
}
