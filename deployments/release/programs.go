package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// programs lists the published programs. The other programs in cmd are for development.
var programs = []string{"trafficd", "trafficctl", "forecaster", "feeder"}

// program returns the path of a built program.
func (r *release) program(arch, name string) string { return filepath.Join(r.build, arch, name) }

// buildPrograms builds the programs for all architectures, their bash completions and NOTICES.txt.
func (r *release) buildPrograms() error {
	for _, arch := range architectures {
		args := []string{
			"build", "-trimpath", "-pgo", "cmd/trafficd/trafficd.pgo", "-ldflags", "-s -w -X 'trafficd/cmd/internal/version.stamp=" + r.stamp + "'",
			"-o", filepath.Join(r.build, arch) + "/",
		}
		for _, name := range programs {
			args = append(args, "./cmd/"+name)
		}
		cmd := exec.Command("go", args...)
		cmd.Dir = r.root
		// Pin every variable that affects the output.
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=",
			"GOEXPERIMENT=", "GODEBUG=")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot build the programs for %s: %w\n%s", arch, err, text)
		}
	}
	for _, name := range programs {
		// The text is the same for all architectures, so the program for this machine is enough.
		text, err := exec.Command(r.program(runtime.GOARCH, name), "completion", "bash").Output()
		if err != nil {
			return fmt.Errorf("cannot generate the bash completion of %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(r.build, name+".bash"), text, 0o644); err != nil {
			return err
		}
	}
	notices, err := r.notices()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.build, "NOTICES.txt"), notices, 0o644)
}

// writeArchives writes an archive of the programs for each architecture.
func (r *release) writeArchives() error {
	for _, arch := range architectures {
		directory := fmt.Sprintf("trafficd-%s-linux-%s", r.version, arch)
		entries := []entry{{name: directory, dir: true, mode: 0o755}}
		for _, name := range programs {
			entries = append(entries, entry{name: directory + "/" + name, source: r.program(arch, name), mode: 0o755})
		}
		for name, source := range map[string]string{
			"LICENSE": "LICENSE", "trafficd.yaml": "deployments/debian/trafficd.yaml", "forecaster.yaml": "deployments/debian/forecaster.yaml",
			"trafficd.service": "deployments/systemd/trafficd.service", "forecaster.service": "deployments/systemd/forecaster.service",
			"feeder.service": "deployments/systemd/feeder.service", "route-follow.service": "deployments/systemd/route-follow.service",
		} {
			entries = append(entries, entry{name: directory + "/" + name, source: filepath.Join(r.root, source), mode: 0o644})
		}
		documents, err := entriesOf(filepath.Join(r.build, "documents"), directory+"/")
		if err != nil {
			return err
		}
		entries = append(entries, documents...)
		entries = append(entries, entry{name: directory + "/NOTICES.txt", source: filepath.Join(r.build, "NOTICES.txt"), mode: 0o644})
		slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
		if err := r.writeTarGz(directory+".tar.gz", entries); err != nil {
			return err
		}
	}
	return nil
}

// notices returns the licence texts of the modules that are linked into the programs. They are
// distributed with the programs.
func (r *release) notices() ([]byte, error) {
	modules, err := r.modules()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, m := range modules {
		cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", m.Path)
		cmd.Dir = r.root
		dir, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("cannot find module %s: %w", m.Path, err)
		}
		found := false
		for _, pattern := range []string{"LICEN[CS]E*", "COPYING*", "NOTICE*"} {
			files, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), pattern)) // fails only for an invalid pattern
			for _, file := range files {
				content, err := os.ReadFile(file)
				if err != nil {
					return nil, err
				}
				found = true
				fmt.Fprintf(&text, "==== %s %s: %s\n\n%s\n\n", m.Path, m.Version, filepath.Base(file), bytes.TrimSpace(content))
			}
		}
		if !found {
			return nil, fmt.Errorf("module %s has no licence file", m.Path)
		}
	}
	return text.Bytes(), nil
}
