package routing

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/schemas/xroute"
)

// TestCallerLogs checks that log1 to log3 are in the request log, truncated to 64 bytes.
func TestCallerLogs(t *testing.T) {
	var log bytes.Buffer
	s := start(t, nil, func(s *Service) { s.log = zerolog.New(&log) })
	for _, operation := range []string{"watchJob", "fetchConvertGeometries", "stopJob", "deleteJob"} {
		log.Reset()
		caller := `<r:callerContext log1="trip 7" log3="` + strings.Repeat("x", 100) + `"><v:wrappedProperties/></r:callerContext>`
		rest := caller
		if operation == "watchJob" {
			rest = watchOptions(0, 250) + caller
		}
		resp, _ := s.post(jobRequest(operation, "none", rest))
		require.Equal(t, 200, resp.StatusCode)
		var line map[string]any
		require.NoError(t, json.Unmarshal(log.Bytes(), &line), log.String())
		require.Equal(t, "trip 7", line["log1"])
		require.NotContains(t, line, "log2")
		require.Equal(t, strings.Repeat("x", 64), line["log3"])
	}
}

// TestPropertyKeys checks that a key in another case is an error, and that an unknown one is
// ignored.
func TestPropertyKeys(t *testing.T) {
	s := start(t, nil)
	request := func(key string) string {
		return convert(`Point" wkt="POINT (8 48)"`, "", xmlOptions(inDegrees, "WKT"), caller(key, "OG_GEODECIMAL"))
	}
	s.requireFault(&xroute.IllegalParameterException{}, "", request("coordformat"))
	s.requireFault(&xroute.IllegalParameterException{}, "", request("SRID"))
	ask[*xroute.ConvertGeometryResponse](s, request("CoordFormat"))
	ask[*xroute.ConvertGeometryResponse](s, request("Unknown"))
}
