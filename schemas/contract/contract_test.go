package contract_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/contract"
	"trafficd/schemas/xroute"
)

// TestErrorCodes compares the names in the tables of section 6.1 with the codes, and the statuses
// with the codes and the OpenAPI document.
func TestErrorCodes(t *testing.T) {
	names := func(from, to contract.Code) (list []string) {
		for code := from; code < to; code++ {
			list = append(list, code.String())
		}
		return list
	}
	requests, items := map[string]string{}, map[string]string{}
	for _, row := range rows(t, "6.1") {
		into := requests
		if row[1] == "207" {
			into = items
		}
		into[row[0]] = row[1]
	}
	shared := []string{"INVALID_TYPE", "DUPLICATE_FIELD", "MISSING_FIELD"}
	require.ElementsMatch(t, append(names(contract.NotFound, contract.BatchLimitExceeded), shared...), slices.Collect(maps.Keys(requests)))
	require.ElementsMatch(t, names(contract.BatchLimitExceeded, contract.CodeCount), slices.Collect(maps.Keys(items)))

	for code := contract.NotFound; code < contract.CodeCount; code++ {
		if code.Status() != 0 {
			require.Equal(t, fmt.Sprint(code.Status()), requests[code.String()], code)
		}
	}
	for _, name := range shared {
		require.Contains(t, requests, name)
	}
	openapi, err := os.ReadFile("../openapi/openapi.yaml")
	require.NoError(t, err)
	for code, status := range requests {
		require.Regexp(t, fmt.Sprintf(`\| %s \| %s[ ,]`, code, status), string(openapi))
	}
}

// TestRuleNumbers compares the numbers in section 6.1 with the numbers of the rules in section 1.2,
// which must be consecutive.
func TestRuleNumbers(t *testing.T) {
	want := map[string][]string{}
	for i, row := range rows(t, "1.2") {
		require.Equal(t, fmt.Sprint(i+1), row[0])
		want[row[2]] = append(want[row[2]], row[0])
	}
	for _, row := range rows(t, "6.1") {
		if row[1] == "207" {
			require.Equal(t, strings.Join(want[row[0]], ", "), row[2], row[0])
		}
	}
}

// TestItemRules compares the rules of section 1.2 with the codes and the members that they name.
func TestItemRules(t *testing.T) {
	named := map[string]bool{}
	for _, row := range rows(t, "1.2") {
		named[row[2]] = true
		for _, member := range regexp.MustCompile(`measurements\[i]\.(\w+)`).FindAllStringSubmatch(row[3], -1) {
			named[member[1]] = true
		}
	}
	for code := contract.BatchLimitExceeded; code < contract.CodeCount; code++ {
		require.True(t, named[code.String()], code)
	}
	members := []string{}
	for _, row := range rows(t, "5.1") {
		members = append(members, row[0])
	}
	for field := contract.FieldDetectorCode; field < contract.FieldCount; field++ {
		require.Equal(t, field.String(), members[field-contract.FieldDetectorCode])
	}
	require.Len(t, members, int(contract.FieldCount-contract.FieldDetectorCode))
}

// TestFixedLimits compares limits that are not settings with the exported constants. Package conf
// compares the defaults of the settings.
func TestFixedLimits(t *testing.T) {
	limits := map[string]string{}
	for _, row := range rows(t, "6.4") {
		limits[row[0]] = row[2]
	}
	require.Equal(t, fmt.Sprint(contract.EchoLimit, " bytes"), limits["quoted input in descriptions and logs"])
	require.Equal(t, fmt.Sprint(xroute.DefaultLimits().Attributes), limits["attributes of an XML element; namespaces in scope"])
}

// TestSections checks that every section that a comment cites exists.
func TestSections(t *testing.T) {
	for _, section := range []string{
		"1", "1.1", "1.2", "1.3", "1.4", "1.5", "2", "3", "3.1", "3.2", "3.3", "3.4", "4", "4.1", "4.2",
		"5", "5.1", "5.2", "5.3", "5.4", "6", "6.1", "6.2", "6.3", "6.4", "6.5", "6.6",
	} {
		require.Regexp(t, `(?m)^##+ `+regexp.QuoteMeta(section)+` `, document(t))
	}
	for _, link := range regexp.MustCompile(`\]\(#([^)]+)\)`).FindAllStringSubmatch(document(t), -1) {
		found := false
		for _, heading := range regexp.MustCompile(`(?m)^##+ (.*)$`).FindAllStringSubmatch(document(t), -1) {
			anchor := strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-")
			found = found || regexp.MustCompile(`[^a-z0-9-]`).ReplaceAllString(anchor, "") == link[1]
		}
		require.True(t, found, "no section for the link #%s", link[1])
	}
}

func document(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("contract.md")
	require.NoError(t, err)
	return string(text)
}

// rows returns the cells of the tables in a section, without the header rows.
func rows(t *testing.T, section string) (list [][]string) {
	t.Helper()
	_, text, found := strings.Cut(document(t), "\n### "+section+" ")
	require.True(t, found, section)
	text, _, _ = strings.Cut(text, "\n##")
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		head := i+1 < len(lines) && strings.HasPrefix(lines[i+1], "|--")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|--") || head {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		list = append(list, cells)
	}
	require.NotEmpty(t, list, section)
	return list
}
