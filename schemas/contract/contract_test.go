package contract_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/contract"
	"trafficd/schemas/xroute"
)

// TestRules checks that each code of items is that of a rule, and that section 5.1 lists the
// members in the order in which rules examine them.
func TestRules(t *testing.T) {
	named := map[contract.Code]bool{}
	for _, r := range contract.Rules {
		named[r.Code] = true
	}
	for code := contract.NotFound; code < contract.CodeCount; code++ {
		require.Equal(t, code.OfItems(), named[code], code)
		require.Equal(t, code.Status() != 0, code.Meaning() != "", code)
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
		"1", "1.1", "1.2", "1.3", "1.4", "1.5", "1.7", "1.8", "2", "3", "3.1", "3.2", "3.3", "3.4", "4", "4.1", "4.2",
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
