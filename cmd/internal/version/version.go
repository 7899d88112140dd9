// Package version says which revision of the sources a program was built from.
package version

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// stamp is written by the linker: `make build` puts the revision, its date and
// whether the tree had changes here.
var stamp string

// Text is the revision and the Go version, for the person who reads a log.
func Text() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return cmp.Or(stamp, unknown)
	}
	return text(stamp, info)
}

// Labels returns the version, the revision and the Go version, as labels of a metric.
func Labels() map[string]string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return labels(stamp, info)
}

func labels(stamp string, info *debug.BuildInfo) map[string]string {
	version, _, _ := strings.Cut(cmp.Or(stamp, ofModule(info), "unknown"), " of ")
	revision, _, _ := strings.Cut(cmp.Or(ofCheckout(info), "unknown"), " of ")
	return map[string]string{"version": version, "revision": revision, "goversion": info.GoVersion}
}

// unknown is what `go run` gives, and a build outside of a checkout.
const unknown = "of unknown revision"

func text(stamp string, info *debug.BuildInfo) string {
	return cmp.Or(stamp, ofCheckout(info), ofModule(info), unknown) + " " + info.GoVersion
}

// ofCheckout is what `go build` notes in a checkout.
func ofCheckout(info *debug.BuildInfo) string {
	noted := map[string]string{}
	for _, s := range info.Settings {
		noted[s.Key] = s.Value
	}
	revision := noted["vcs.revision"]
	if revision == "" {
		return ""
	}
	text := revision[:min(12, len(revision))]
	if noted["vcs.modified"] == "true" {
		text += "+changes"
	}
	if at := noted["vcs.time"]; at != "" {
		text += " of " + at
	}
	return text
}

// ofModule is what `go install` notes of a module that it fetched.
func ofModule(info *debug.BuildInfo) string {
	if info.Main.Version == "(devel)" {
		return ""
	}
	return info.Main.Version
}
