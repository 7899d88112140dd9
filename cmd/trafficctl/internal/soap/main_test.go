package soap_test

import (
	"testing"

	"trafficd/cmd/trafficctl/internal/testdaemon"
)

func TestMain(m *testing.M) {
	testdaemon.VerifyTestMain(m)
}
