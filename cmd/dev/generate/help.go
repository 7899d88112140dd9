package main

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"time"

	"trafficd/cmd/internal/conf"
)

// definitions are the parsed and checked packages that define settings.
type definitions struct {
	fset  *token.FileSet
	info  *types.Info
	texts map[string]string            // keyed by field
	names map[string]map[string]string // keyed by type and Go name; the values are names of settings
}

// readHelp returns the help of each field with a setting tag: its comment, and the bounds that
// Validate checks.
func readHelp() (map[string]string, error) {
	list := exec.CommandContext(context.Background(), "go", "list", "-export", "-deps",
		"-f", "{{.ImportPath}}\t{{.Export}}\t{{.Dir}}\t{{range .GoFiles}}{{.}} {{end}}",
		"trafficd/cmd/trafficd/config", "trafficd/cmd/forecaster/config", "trafficd/cmd/feeder/config")
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list the packages: %w", err)
	}
	exports := map[string]string{}
	d := &definitions{
		fset: token.NewFileSet(), texts: map[string]string{}, names: map[string]map[string]string{},
		info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Selections: map[*ast.SelectorExpr]*types.Selection{}},
	}
	files := map[string][]*ast.File{}
	for line := range strings.Lines(string(out)) {
		part := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		exports[part[0]] = part[1]
		if !strings.HasPrefix(part[0], "trafficd/") {
			continue
		}
		settings := false
		var parsed []*ast.File
		for _, name := range strings.Fields(part[3]) {
			text, err := os.ReadFile(filepath.Join(part[2], name))
			if err != nil {
				return nil, err
			}
			settings = settings || bytes.Contains(text, []byte("`setting:\""))
			f, err := parser.ParseFile(d.fset, name, text, parser.ParseComments)
			if err != nil {
				return nil, err
			}
			parsed = append(parsed, f)
		}
		if settings {
			files[part[0]] = parsed
		}
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	checker := types.Config{Importer: importer.ForCompiler(d.fset, "gc", open)}
	for path, parsed := range files {
		if _, err := checker.Check(path, d.fset, parsed, d.info); err != nil {
			return nil, err
		}
		for _, f := range parsed {
			ast.Inspect(f, func(n ast.Node) bool { d.recordFields(path, n); return true })
		}
	}
	for path, parsed := range files {
		for _, f := range parsed {
			for _, decl := range f.Decls {
				if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv != nil {
					ast.Inspect(fn, func(n ast.Node) bool { d.bounds(path+"."+typeName(fn.Recv.List[0].Type), n); return true })
				}
			}
		}
	}
	for field, text := range d.texts {
		if text == "" {
			return nil, fmt.Errorf("%s has no comment, which is its help", field)
		}
	}
	return d.texts, nil
}

func typeName(e ast.Expr) string {
	if star, ok := e.(*ast.StarExpr); ok {
		e = star.X
	}
	name, _ := e.(*ast.Ident)
	return name.String()
}

// recordFields records the comments of a struct's settings.
func (d *definitions) recordFields(path string, n ast.Node) {
	spec, ok := n.(*ast.TypeSpec)
	if !ok {
		return
	}
	typ, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	owner := path + "." + spec.Name.Name
	names := map[string]string{}
	for _, f := range typ.Fields.List {
		name := tagOf(f)
		if len(f.Names) == 1 && name != "" {
			names[f.Names[0].Name] = name
		}
	}
	d.names[owner] = names
	for _, f := range typ.Fields.List {
		if len(f.Names) != 1 || names[f.Names[0].Name] == "" {
			continue
		}
		text := f.Doc.Text()
		if text == "" {
			text = f.Comment.Text()
		}
		text = strings.Join(strings.Fields(text), " ")
		for field, name := range names { // comments use the names of fields, but help uses the names of settings
			if camelCase.MatchString(field) {
				text = regexp.MustCompile(`\b`+field+`\b`).ReplaceAllString(text, name)
			}
		}
		d.texts[owner+"."+f.Names[0].Name] = sentence(text)
	}
}

// tagOf returns the name of a field's setting, or "" if it is a constant that tests vary.
func tagOf(f *ast.Field) string {
	if f.Tag == nil {
		return ""
	}
	name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("setting"), ",")
	return strings.TrimPrefix(name, "-")
}

var camelCase = regexp.MustCompile(`[a-z][A-Z]`)

// sentence returns text with a full stop.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.TrimSuffix(text, ".") + "."
}

// condition is the text of an error such as "level is %q, must be debug or info".
var condition = regexp.MustCompile(`^(?:%s)?([a-z_]+)(?: is %[a-z]|)[,:]? (?:it )?(must [^%]*)$`)

// bounds adds to the help the condition that a call in a method of owner checks: the bounds that
// are passed to settings.Within and similar functions, or the condition in the text of an error.
func (d *definitions) bounds(owner string, n ast.Node) {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) < 2 {
		return
	}
	text := func(i int) string {
		if i < len(call.Args) {
			if v := d.info.Types[call.Args[i]].Value; v != nil && v.Kind() == constant.String {
				return constant.StringVal(v)
			}
		}
		return ""
	}
	function := ""
	if f, ok := call.Fun.(*ast.SelectorExpr); ok {
		function = f.Sel.Name
	}
	arg := func(i int) ast.Expr { return call.Args[i] }
	switch {
	case function == "Within" && len(call.Args) == 5:
		field := d.field(arg(1))
		d.add(field, "Must be from %s to %s: %s.", d.value(field, arg(2)), d.value(field, arg(3)), text(4))
	case function == "AtLeast" && len(call.Args) == 4:
		field := d.field(arg(1))
		if least := d.value(field, arg(2)); strings.TrimRight(least, "0s") != "" { // the comment says what 0 means
			d.add(field, "At least %s: %s.", least, text(3))
		}
	case function == "Positive" && len(call.Args) == 3:
		d.add(d.field(arg(1)), "More than 0: %s.", text(2))
	default:
		if m := condition.FindStringSubmatch(text(1)); m != nil {
			for field, name := range d.names[owner] {
				if name == m[1] && !strings.Contains(m[2], "given") { // "given" means that it depends on another setting
					d.add(owner+"."+field, "M%s", sentence(m[2][1:]))
				}
			}
		}
	}
}

func (d *definitions) add(field, format string, args ...any) {
	if d.texts[field] != "" && !strings.Contains(fmt.Sprintf(format, args...), "?") {
		d.texts[field] += " " + fmt.Sprintf(format, args...)
	}
}

// field returns the qualified name of the field that an expression such as c.Kafka.Interval
// selects: package.Type.Field.
func (d *definitions) field(e ast.Expr) string {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok || d.info.Selections[selector] == nil {
		return ""
	}
	s := d.info.Selections[selector]
	typ := s.Recv()
	for _, i := range s.Index()[:len(s.Index())-1] {
		typ = deref(typ).Underlying().(*types.Struct).Field(i).Type()
	}
	named, ok := deref(typ).(*types.Named)
	if !ok {
		return ""
	}
	return named.Obj().Pkg().Path() + "." + named.Obj().Name() + "." + selector.Sel.Name
}

func deref(t types.Type) types.Type {
	if p, ok := t.(*types.Pointer); ok {
		return p.Elem()
	}
	return t
}

// value returns a bound as it would be written: a constant, or the name of another setting; ? for
// anything else.
func (d *definitions) value(field string, e ast.Expr) string {
	tv := d.info.Types[e]
	if tv.Value == nil {
		other := d.field(e)
		at := strings.LastIndexByte(other, '.')
		if at < 0 || d.names[other[:at]][other[at+1:]] == "" {
			return "?"
		}
		return d.names[other[:at]][other[at+1:]]
	}
	number, exact := constant.Int64Val(constant.ToInt(tv.Value))
	switch {
	case tv.Type.String() == "time.Duration":
		return zeros.ReplaceAllString(time.Duration(number).String(), "$1")
	case exact && strings.Contains(field, "Bytes"):
		return conf.FormatSize(number)
	}
	text := tv.Value.String()
	for at := len(text) - 3; exact && at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// zeros matches the zero units at the end of 1h0m0s.
var zeros = regexp.MustCompile(`([1-9]\d*[hm])(?:0m)?0s$`)
