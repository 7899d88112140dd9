package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
)

// writeChart writes the Helm chart with the release's version, as `helm package` does, but
// reproducibly.
func (r *release) writeChart() error {
	directory := filepath.Join(r.root, "deployments/kubernetes/trafficd")
	entries, err := entriesOf(directory, "trafficd/")
	if err != nil {
		return err
	}
	for i := range entries {
		if entries[i].name != "trafficd/Chart.yaml" {
			continue
		}
		text, err := os.ReadFile(entries[i].source)
		if err != nil {
			return err
		}
		text = bytes.ReplaceAll(text, []byte("0.0.0"), []byte(r.version))
		entries[0], entries[i] = entries[i], entries[0] // readers expect it first
		entries[0].source, entries[0].content = "", text
		return r.writeTarGz("trafficd-chart-"+r.version+".tgz", entries)
	}
	return errors.New("cannot write the chart: it has no Chart.yaml")
}
