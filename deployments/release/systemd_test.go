package main

import "testing"

// The unit is verified by testdata/install.sh, because that needs the installed programs.
func TestUnitExposure(t *testing.T) {
	output(t, "systemd-analyze", "security", "--offline=yes", "--threshold=15", "--no-pager", root+"/deployments/systemd/trafficd.service")
}
