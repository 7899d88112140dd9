package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/forecaster/internal/health"
	"trafficd/schemas/contract"
)

// TestStatesAreDescribed checks that integrators are told what each test requires.
func TestStatesAreDescribed(t *testing.T) {
	var tests, states []string
	for _, test := range health.Tests {
		tests = append(tests, test.Name)
	}
	for _, s := range contract.HealthStates {
		states = append(states, s.Name)
		require.NotEmpty(t, s.Rule)
	}
	require.ElementsMatch(t, tests, states)
}
