package evaluate

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/forecaster/internal/model"
)

// TestPersistence checks that persistence forecasts the last value, even if it is 0, as a flow may
// be at night, and the profile if there is none.
func TestPersistence(t *testing.T) {
	f := func(last, want float64) {
		t.Helper()
		var s sums
		s.add(reading{value: 3}, model.Forecast{}, model.Detail{Profile: 20}, last, &model.Recent{})
		require.InDelta(t, want, s.absolute[1], 1e-9)
	}
	f(5, 2)
	f(0, 3)
	f(math.NaN(), 17)
}
