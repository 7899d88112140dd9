package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// stampPattern matches the output of `git describe --tags --always --dirty=+changes`, followed by
// the commit's date.
var stampPattern = regexp.MustCompile(
	`^(?:v(\d+\.\d+\.)(\d+)(-[0-9A-Za-z.]+?)?(?:-(\d+)-g([0-9a-f]+))?|([0-9a-f]+))(\+changes)? of (\d{4}-\d\d-\d\d)$`)

// parseStamp returns the version of the artefacts and the commit's date. The tag v1.2.3 becomes the
// version 1.2.3. Other commits get a version that sorts between the tags before and after them.
func parseStamp(stamp string) (version string, date time.Time, err error) {
	m := stampPattern.FindStringSubmatch(stamp)
	if m == nil {
		return "", date, fmt.Errorf("the version is %q, must be a tag such as v1.2.3 or a commit, and a date: v1.2.3 of 2026-11-22", stamp)
	}
	minor, patch, pre, since, commit, dirty, day := m[1], m[2], m[3], m[4], m[5]+m[6], m[7], m[8]
	if date, err = time.Parse(time.DateOnly, day); err != nil {
		return "", date, fmt.Errorf("the version %q has an invalid date: %w", stamp, err)
	}
	switch {
	case minor == "":
		version = "0.0.0-dev." + strings.ReplaceAll(day, "-", "") + ".g" + commit
	case since == "":
		version = minor + patch + pre
	case pre != "":
		version = minor + patch + pre + ".dev." + since + ".g" + commit
	default:
		n, _ := strconv.Atoi(patch) // digits
		version = minor + strconv.Itoa(n+1) + "-dev." + since + ".g" + commit
	}
	if dirty != "" {
		if isSnapshot(version) {
			version += ".changes"
		} else {
			version += "-dev.changes"
		}
	}
	return version, date, nil
}

// isSnapshot reports whether a version is not that of a tag.
func isSnapshot(version string) bool { return strings.Contains(version, "dev.") }
