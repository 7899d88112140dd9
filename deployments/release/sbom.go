package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// modules returns the Go modules in the built programs, sorted by path.
func (r *release) modules() ([]*debug.Module, error) {
	found := map[string]*debug.Module{}
	for _, arch := range architectures {
		for _, name := range programs {
			info, err := buildinfo.ReadFile(r.program(arch, name))
			if err != nil {
				return nil, fmt.Errorf("cannot list the modules in %s: %w", name, err)
			}
			for _, m := range info.Deps {
				if m.Replace != nil {
					m = m.Replace
				}
				found[m.Path] = m
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *debug.Module) int { return cmp.Compare(a.Path, b.Path) }), nil
}

func (r *release) sbomName() string { return "trafficd-" + r.version + ".cdx.json" }

// writeSBOM writes a CycloneDX document with the Go modules in the programs and the npm packages in
// the web page.
func (r *release) writeSBOM() error {
	modules, err := r.modules()
	if err != nil {
		return err
	}
	components := []cdx.Component{{
		Type: cdx.ComponentTypeLibrary, Name: "std", Version: strings.TrimPrefix(runtime.Version(), "go"),
		BOMRef: "std", PackageURL: "pkg:golang/std@" + strings.TrimPrefix(runtime.Version(), "go"),
	}}
	for _, m := range modules {
		url := "pkg:golang/" + m.Path + "@" + m.Version
		components = append(components, cdx.Component{
			Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, BOMRef: url,
			PackageURL: url,
		})
	}
	page, err := r.pagePackages()
	if err != nil {
		return err
	}
	components = append(components, page...)
	bom := cdx.NewBOM()
	self := "pkg:golang/trafficd@" + r.version
	bom.Metadata = &cdx.Metadata{
		Timestamp: r.date.Format(time.RFC3339),
		Component: &cdx.Component{
			Type: cdx.ComponentTypeApplication, Name: "trafficd", Version: r.version, BOMRef: self, PackageURL: self,
			Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		},
	}
	bom.Components = &components
	return r.create(r.sbomName(), func(w io.Writer) error {
		return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	})
}

// pagePackages returns the npm packages that are bundled into the web page.
func (r *release) pagePackages() ([]cdx.Component, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "sources/page/app/package-lock.json"))
	if err != nil {
		return nil, fmt.Errorf("cannot list the web page's packages: %w", err)
	}
	var lock struct {
		Packages map[string]struct {
			Version, License string
			Dev              bool
		}
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, fmt.Errorf("cannot list the web page's packages: %w", err)
	}
	var list []cdx.Component
	for _, path := range slices.Sorted(maps.Keys(lock.Packages)) {
		p := lock.Packages[path]
		if path == "" || p.Dev {
			continue
		}
		name := path[strings.LastIndex(path, "node_modules/")+len("node_modules/"):]
		url := "pkg:npm/" + strings.Replace(name, "@", "%40", 1) + "@" + p.Version
		c := cdx.Component{Type: cdx.ComponentTypeLibrary, Name: name, Version: p.Version, BOMRef: url, PackageURL: url}
		if p.License != "" {
			c.Licenses = &cdx.Licenses{{Expression: p.License}}
		}
		list = append(list, c)
	}
	return list, nil
}
