package xroute

import (
	"encoding/xml"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The parts of XML Schema that the documents use.
type (
	xsdDocument struct {
		Target       string    `xml:"targetNamespace,attr"`
		Elements     string    `xml:"elementFormDefault,attr"`
		Attributes   string    `xml:"attributeFormDefault,attr"`
		SimpleTypes  []xsdType `xml:"simpleType"`
		ComplexTypes []xsdType `xml:"complexType"`
		Globals      []xsdItem `xml:"element"`
	}
	xsdType struct {
		Name     string `xml:"name,attr"`
		Abstract bool   `xml:"abstract,attr"`
		xsdContent
		Extension struct {
			Base string `xml:"base,attr"`
			xsdContent
		} `xml:"complexContent>extension"`
		Values []struct {
			Value string `xml:"value,attr"`
		} `xml:"restriction>enumeration"`
	}
	xsdContent struct {
		Elements   []xsdItem `xml:"sequence>element"`
		Attributes []xsdItem `xml:"attribute"`
	}
	xsdItem struct {
		Name     string `xml:"name,attr"`
		Type     string `xml:"type,attr"`
		Use      string `xml:"use,attr"`
		Min      string `xml:"minOccurs,attr"`
		Max      string `xml:"maxOccurs,attr"`
		Nillable bool   `xml:"nillable,attr"`
	}
)

// TestTables compares the documents with contract 5.4, type by type.
func TestTables(t *testing.T) {
	contract, err := os.ReadFile("../contract/contract.md")
	require.NoError(t, err)
	block := func(language string) string {
		_, text, found := strings.Cut(string(contract), "\n```"+language+"\n")
		require.True(t, found, language)
		text, _, _ = strings.Cut(text, "```")
		return text
	}
	types, enumerations, arrays, globals := readDocuments(t)
	f := func(want map[string]string, got map[string]string) {
		t.Helper()
		for name, line := range want {
			require.Equal(t, line, got[name], name)
			delete(got, name)
		}
	}
	described := linesOf(block("types"))
	listed := linesOf(block("enumerations"))
	f(described, types)
	f(listed, enumerations)
	require.Empty(t, enumerations, "enumerations that are not in the contract")
	require.Empty(t, types, "types that are not in the contract")

	wantArrays := map[string]string{}
	addArrays := func(item, itemType string) {
		wantArrays["ArrayOf"+item] = item + "=" + itemType
		wantArrays["ArrayOfArrayOf"+item] = "ArrayOf" + item + "=ArrayOf" + item
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(described)), slices.Collect(maps.Keys(listed))) {
		addArrays(name, name)
	}
	for _, pair := range strings.Fields(block("primitives")) {
		item, itemType, _ := strings.Cut(pair, "=")
		addArrays(item, itemType)
	}
	f(wantArrays, arrays)
	require.Empty(t, arrays, "arrays of types that are not in the contract")

	for name := range described {
		if strings.HasSuffix(name, "Exception") {
			require.Contains(t, globals, name+"="+name)
		}
	}
}

func linesOf(table string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(table) {
		if line = strings.TrimSpace(line); line != "" {
			head, _, _ := strings.Cut(line, ":")
			name, _, _ := strings.Cut(head, " ")
			found[name] = line
		}
	}
	return found
}

// readDocuments returns the types in the documents by name: types and enumerations in the form of
// the contract's tables, and for arrays the name and type of the items. Each global is name=type.
func readDocuments(t *testing.T) (types, enumerations, arrays map[string]string, globals []string) {
	t.Helper()
	types, enumerations, arrays = map[string]string{}, map[string]string{}, map[string]string{}
	put := func(into map[string]string, name, line string) {
		require.NotContains(t, into, name, "declared twice")
		into[name] = strings.TrimSpace(line)
	}
	for _, file := range SchemaNames() {
		var doc xsdDocument
		require.NoError(t, xml.Unmarshal(Schema(file, "VENDOR"), &doc))
		require.Equal(t, []string{"qualified", "unqualified"}, []string{doc.Elements, doc.Attributes})
		require.True(t, strings.HasPrefix(doc.Target, "urn:xserver:"))
		for _, s := range doc.SimpleTypes {
			line := s.Name + ":"
			for _, v := range s.Values {
				line += " " + v.Value
			}
			put(enumerations, s.Name, line)
		}
		for _, c := range doc.ComplexTypes {
			if strings.HasPrefix(c.Name, "ArrayOf") {
				require.Len(t, c.Elements, 1, c.Name)
				require.Equal(t, []string{"0", "unbounded"}, []string{c.Elements[0].Min, c.Elements[0].Max})
				put(arrays, c.Name, c.Elements[0].Name+"="+local(c.Elements[0].Type))
				continue
			}
			put(types, c.Name, lineOf(c))
		}
		for _, g := range doc.Globals {
			globals = append(globals, g.Name+"="+local(g.Type))
		}
	}
	return types, enumerations, arrays, globals
}

func lineOf(c xsdType) string {
	line := c.Name
	if c.Abstract {
		line += " !"
	}
	content := c.xsdContent
	if c.Extension.Base != "" {
		line += " < " + local(c.Extension.Base)
		content = c.Extension.xsdContent
	}
	line += ":"
	for _, a := range content.Attributes {
		line += " " + a.Name + "=" + local(a.Type) + when(a.Use == "required", "+")
	}
	line += " |"
	for _, e := range content.Elements {
		line += " " + e.Name + "=" + local(e.Type) + when(e.Min != "0", "+") + when(e.Nillable, "~")
	}
	return line
}

func local(qname string) string { return qname[strings.IndexByte(qname, ':')+1:] }
