package version

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestText(t *testing.T) {
	f := func(stamp, module, want string, settings ...debug.BuildSetting) {
		t.Helper()
		info := &debug.BuildInfo{GoVersion: "go1.26.8", Settings: settings}
		info.Main.Version = module
		require.Equal(t, want+" go1.26.8", text(stamp, info))
	}
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "deb81a7240c28a46577963ed0fae30be910e5501"}
	at := debug.BuildSetting{Key: "vcs.time", Value: "2026-11-21T09:50:32Z"}
	f("", "(devel)", "of unknown revision")
	f("", "", "of unknown revision")
	f("", "v1.2.3", "v1.2.3")
	f("", "v0.0.0-20261121095032-deb81a7240c2", "deb81a7240c2 of 2026-11-21T09:50:32Z", revision, at, debug.BuildSetting{Key: "vcs.modified", Value: "false"})
	f("", "(devel)", "deb81a7240c2+changes of 2026-11-21T09:50:32Z", revision, at, debug.BuildSetting{Key: "vcs.modified", Value: "true"})
	f("", "(devel)", "deb81a7", debug.BuildSetting{Key: "vcs.revision", Value: "deb81a7"})
	f("v1.2.3 of 2026-11-21", "(devel)", "v1.2.3 of 2026-11-21", revision, at)
}

func TestLabels(t *testing.T) {
	f := func(stamp, module, version, revision string, settings ...debug.BuildSetting) {
		t.Helper()
		info := &debug.BuildInfo{GoVersion: "go1.26.8", Settings: settings}
		info.Main.Version = module
		require.Equal(t, map[string]string{"version": version, "revision": revision, "goversion": "go1.26.8"}, labels(stamp, info))
	}
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "deb81a7240c28a46577963ed0fae30be910e5501"}
	at := debug.BuildSetting{Key: "vcs.time", Value: "2026-11-21T09:50:32Z"}
	f("", "(devel)", "unknown", "unknown")
	f("", "v1.2.3", "v1.2.3", "unknown")
	f("", "(devel)", "unknown", "deb81a7240c2", commit, at)
	f("v1.2.3 of 2026-11-21", "(devel)", "v1.2.3", "deb81a7240c2", commit)
	f("v1.2.3-4-gdeb81a7+changes of 2026-11-21", "(devel)", "v1.2.3-4-gdeb81a7+changes", "unknown")
}

func TestTextOfThisProgram(t *testing.T) {
	require.Regexp(t, ` go1\.\d+`, Text())
}
