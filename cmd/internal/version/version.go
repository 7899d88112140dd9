// Package version reports the revision of the sources that a program was built from.
package version

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// stamp is set by the linker: `make build` stores the revision, its date and whether the tree had
// changes.
var stamp string

// Text returns the revision, which is unknown for `go run`, and the Go version.
func Text() string { return text(stamp, buildInfo()) }

// Labels returns the version, the revision and the Go version, as labels of a metric.
func Labels() map[string]string { return labels(stamp, buildInfo()) }

func buildInfo() *debug.BuildInfo {
	info, _ := debug.ReadBuildInfo() // nil only in a build without modules
	return info
}

func labels(stamp string, info *debug.BuildInfo) map[string]string {
	version, _, _ := strings.Cut(cmp.Or(stamp, ofModule(info), "unknown"), " of ")
	revision, _, _ := strings.Cut(cmp.Or(ofCheckout(info), "unknown"), " of ")
	return map[string]string{"version": version, "revision": revision, "goversion": info.GoVersion}
}

func text(stamp string, info *debug.BuildInfo) string {
	return strings.TrimSpace(cmp.Or(stamp, ofCheckout(info), ofModule(info), "of unknown revision") + " " + info.GoVersion)
}

// ofCheckout returns the revision that `go build` records in a checkout, or "" if there is none.
func ofCheckout(info *debug.BuildInfo) string {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := settings["vcs.revision"]
	if revision == "" {
		return ""
	}
	text := revision[:min(12, len(revision))]
	if settings["vcs.modified"] == "true" {
		text += "+changes"
	}
	if at := settings["vcs.time"]; at != "" {
		text += " of " + at
	}
	return text
}

// ofModule returns the version that `go install` records for a downloaded module, or "".
func ofModule(info *debug.BuildInfo) string {
	if info.Main.Version == "(devel)" {
		return ""
	}
	return info.Main.Version
}
