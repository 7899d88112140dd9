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

// profile says how the files of a data set become measurements: the flags of
// `trafficctl send` and the column that holds the detectors.
type profile struct {
	Observations string   `yaml:"observations"`
	Columns      []string `yaml:"columns"` // the header by which the data set is recognised
	Detectors    struct {
		File   string `yaml:"file"`
		Column string `yaml:"column"`
	} `yaml:"detectors"`
	Send        []string `yaml:"send"`
	Codes       string   `yaml:"codes"` // OpenLR, one a line: streets for the forecasts; may be missing
	Attribution string   `yaml:"attribution"`
	name        string
}

// profileFolder holds one file for each known data set.
const profileFolder = "deployments/quickstart"

// findProfile gives the profile for the data in folder: the one that is asked
// for (a name or a file), that of the folder's name, or the one whose columns
// stand in the header of its observations.
func findProfile(root, folder, asked string) (*profile, error) {
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("there is no folder %s: name the one that holds the observations (make run DATA=folder)", folder)
	}
	known := filepath.Join(root, profileFolder)
	if asked != "" {
		if !strings.ContainsAny(asked, "/.") {
			asked = filepath.Join(known, asked+".yaml")
		}
		return readProfile(asked)
	}
	named := filepath.Join(known, filepath.Base(filepath.Clean(folder))+".yaml")
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
		if header, err := headerOf(filepath.Join(folder, p.Observations)); err == nil && slices.Equal(header, p.Columns) {
			return p, nil
		}
	}
	return nil, fmt.Errorf("cannot tell how to read %s: no file in %s has its name or its columns; write one like those and name it by --profile", folder, known)
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
		return nil, fmt.Errorf("profile %s: observations, detectors.file and detectors.column have to be set", path)
	}
	return p, nil
}

// headerOf gives the column names of a CSV file.
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
