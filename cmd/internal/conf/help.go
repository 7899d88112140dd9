package conf

import (
	_ "embed"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

// helpJSON holds the help of each field with a setting tag, keyed by type and name.
// cmd/dev/generate generates it from the fields' comments and the checks of their values.
//
//go:embed help.json
var helpJSON []byte

var helpTexts = sync.OnceValue(func() (texts map[string]string) {
	_ = json.Unmarshal(helpJSON, &texts) // it is generated
	return texts
})

func helpOf(typ reflect.Type, index []int) string {
	for ; len(index) > 1; index = index[1:] { // embedded structs
		typ = typ.Field(index[0]).Type
	}
	return helpTexts()[typ.PkgPath()+"."+typ.Name()+"."+typ.Field(index[0]).Name]
}

// helpOfEntries returns text, followed by the help of each key if typ is a list of sections.
func helpOfEntries(typ reflect.Type, text string) string {
	if typ.Kind() != reflect.Slice || !isSection(typ.Elem()) {
		return text
	}
	lines := []string{text, "Each entry has these keys:"}
	var walk func(typ reflect.Type, at string)
	walk = func(typ reflect.Type, at string) {
		for _, f := range fieldsOf(typ) {
			below := f.typ
			for below.Kind() == reflect.Pointer || below.Kind() == reflect.Slice {
				below = below.Elem()
			}
			lines = append(lines, "  "+join(at, f.name)+": "+helpOf(typ, f.index))
			if isSection(below) {
				walk(below, join(at, f.name))
			}
		}
	}
	walk(typ.Elem(), "")
	return strings.Join(lines, "\n")
}

// wrap breaks lines at spaces so that they have at most width bytes. If a line is indented, its
// continuation is indented by two more spaces.
func wrap(text string, width int) string {
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		if indent != "" {
			indent += "  "
		}
		for len(line) > width {
			at := strings.LastIndexByte(line[:width], ' ')
			if at <= len(indent) {
				break
			}
			out = append(out, line[:at])
			line = indent + line[at+1:]
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}
