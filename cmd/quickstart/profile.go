package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ulikunitz/xz"
	"go.yaml.in/yaml/v3"
)

// profile describes how to read a data set: the flags of `trafficctl send` and the column of the detectors.
type profile struct {
	Observations string   `yaml:"observations"`
	Columns      []string `yaml:"columns"` // the header, which identifies the data set
	Detectors    struct {
		File   string `yaml:"file"`
		Column string `yaml:"column"`
	} `yaml:"detectors"`
	Send        []string `yaml:"send"`
	Codes       string   `yaml:"codes"` // OpenLR codes, one per line: streets of the forecasts; optional
	Attribution string   `yaml:"attribution"`
	name        string
}

// profileDir has one file for each known data set.
const profileDir = "deployments/quickstart"

// findProfile returns the profile for the data in dir: the requested one (a name or a file), the one with the directory's
// name, or the one whose columns match the observations' header.
func findProfile(root, dir, requested string) (*profile, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory: specify the one with the observations (make run DATA=directory)", dir)
	}
	known := filepath.Join(root, profileDir)
	if requested != "" {
		if !strings.ContainsAny(requested, "/.") {
			requested = filepath.Join(known, requested+".yaml")
		}
		return readProfile(requested)
	}
	named := filepath.Join(known, filepath.Base(filepath.Clean(dir))+".yaml")
	if _, err := os.Stat(named); err == nil {
		return readProfile(named)
	}
	files, err := filepath.Glob(filepath.Join(known, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("cannot list the profiles: %w", err)
	}
	for _, file := range files {
		p, err := readProfile(file)
		if err != nil {
			return nil, err
		}
		if header, err := headerOf(filepath.Join(dir, p.Observations)); err == nil && slices.Equal(header, p.Columns) {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no profile for %s: no file in %s has its name or its columns; write one and select it with --profile", dir, known)
}

func readProfile(path string) (*profile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the profile: %w", err)
	}
	defer f.Close()
	p := &profile{name: strings.TrimSuffix(filepath.Base(path), ".yaml")}
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(p); err != nil {
		return nil, fmt.Errorf("cannot parse the profile %s: %w", path, err)
	}
	if p.Observations == "" || p.Detectors.File == "" || p.Detectors.Column == "" {
		return nil, fmt.Errorf("profile %s: observations, detectors.file and detectors.column must be set", path)
	}
	return p, nil
}

// headerOf returns the column names of a CSV file.
func headerOf(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".xz") {
		if r, err = xz.NewReader(f); err != nil {
			return nil, err
		}
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return strings.Split(strings.TrimSpace(line), ","), nil
}
