package soap

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// toolkit is a running program that uses a SOAP toolkit. It reads calls as lines of JSON, and
// prints each response as the toolkit decoded it, so that one Go test checks all toolkits.
type toolkit struct {
	t         *testing.T
	steps     io.WriteCloser
	responses *bufio.Reader
}

// toolkitStep is a call to the service. The call "authorize" sets the credentials of later calls;
// without credentials, no key is sent.
type toolkitStep struct {
	Call       string            `json:"call"`
	Geometry   *decodedGeometry  `json:"geometry,omitempty"`
	Geometries []decodedGeometry `json:"geometries,omitempty"`
	Options    *routingOptions   `json:"options,omitempty"`
	Watch      *watchOptions     `json:"watch,omitempty"`
	Properties map[string]string `json:"properties,omitempty"` // of the CallerContext
	ID         string            `json:"id,omitempty"`

	Password string `json:"password,omitempty"` // authorize by HTTP Basic, with any user
	Header   string `json:"header,omitempty"`   // authorize by this Authorization header
}

type routingOptions struct {
	Encodings   []string `json:"encodings"`
	CoordFormat string   `json:"coordFormat"`
	SrID        string   `json:"srId,omitempty"`
}

type watchOptions struct {
	MaximumPollingPeriod int `json:"maximumPollingPeriod"`
	ProgressUpdatePeriod int `json:"progressUpdatePeriod"`
}

// decodedGeometry is a geometry as the toolkit decoded it.
type decodedGeometry struct {
	Type  string        `json:"type"` // the name of the class
	Plain *decodedPlain `json:"plain,omitempty"`
	WKT   string        `json:"wkt,omitempty"`
	WKB   []byte        `json:"wkb,omitempty"`
	KML   *decodedKML   `json:"kml,omitempty"`
}

// decodedPlain is a geometry of a Plain type: coordinates nested as in GeoJSON, or the members of a
// collection.
type decodedPlain struct {
	Type        string          `json:"type"`
	Coordinates json.RawMessage `json:"coordinates,omitempty"`
	Geometries  []decodedPlain  `json:"geometries,omitempty"`
}

type decodedKML struct {
	KML        string   `json:"kml,omitempty"`
	Placemarks []string `json:"placemarks,omitempty"`
}

// decodedResponse is a response as the toolkit decoded it.
type decodedResponse struct {
	Geometry   *decodedGeometry  `json:"geometry"`
	Job        *decodedJob       `json:"job"`
	Geometries []decodedGeometry `json:"geometries"` // of a fetch, with Job
	Failures   []decodedFailure  `json:"failures"`   // likewise
	Fault      *decodedFault     `json:"fault"`
	Status     int               `json:"status"` // of an HTTP response without an envelope
	Error      string            `json:"error"`  // any other failure of the toolkit
}

type decodedJob struct {
	ID          string        `json:"id"`
	Status      string        `json:"status"`
	ElapsedTime *int          `json:"elapsedTime"`
	Progress    *seenProgress `json:"progress"`
}

type seenProgress struct {
	Type       string `json:"type"`
	Failed     int    `json:"failed"`
	Remaining  int    `json:"remaining"`
	Successful int    `json:"successful"`
}

// decodedFailure is the error of a geometry that a job could not convert.
type decodedFailure struct {
	Index     int          `json:"index"`
	Exception decodedFault `json:"exception"`
}

// decodedFault is a typed exception: its class, and its stack elements from the outermost to the
// innermost.
type decodedFault struct {
	Type          string             `json:"type"`
	String        string             `json:"string"` // faultstring, of a fault only
	TransactionID string             `json:"transactionId"`
	Stack         []seenStackElement `json:"stack"`
}

type seenStackElement struct {
	ErrorKey  string   `json:"errorKey"`
	Message   string   `json:"message"`
	ClassName string   `json:"className"`
	Context   []string `json:"context"`
}

// startToolkit starts the program, which must end at the end of its input. Anything it writes to
// stderr is a warning and fails the test.
func startToolkit(t *testing.T, cmd *exec.Cmd) *toolkit {
	t.Helper()
	var warnings bytes.Buffer
	cmd.Stderr = &warnings
	steps, err := cmd.StdinPipe()
	require.NoError(t, err)
	responses, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		steps.Close()
		defer time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }).Stop()
		_, _ = io.Copy(io.Discard, responses)
		require.NoError(t, cmd.Wait(), warnings.String())
		require.Empty(t, warnings.String())
	})
	return &toolkit{t: t, steps: steps, responses: bufio.NewReader(responses)}
}

// do makes the program execute a step and returns what it decoded.
func (k *toolkit) do(s toolkitStep) decodedResponse {
	k.t.Helper()
	line, err := json.Marshal(s)
	require.NoError(k.t, err)
	_, err = k.steps.Write(append(line, '\n'))
	require.NoError(k.t, err)
	response, err := k.responses.ReadBytes('\n')
	require.NoError(k.t, err, "no response to %s", line)
	var o decodedResponse
	require.NoError(k.t, json.Unmarshal(response, &o), "%s", response)
	require.Empty(k.t, o.Error, "%s", line)
	return o
}
