package conf_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/internal/conf"
	"trafficd/cmd/trafficd/config"
)

// TestEveryFieldHasAKey checks that every field has a tag, without which it cannot be set, printed
// or suggested, and a type that package conf supports.
func TestEveryFieldHasAKey(t *testing.T) {
	var walk func(typ reflect.Type, at string)
	walk = func(typ reflect.Type, at string) {
		for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if !conf.IsSection(typ) {
			require.Contains(t, []reflect.Kind{reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64}, typ.Kind(), at)
			return
		}
		fields := conf.FieldsOf(typ)
		squashed := 0
		for i := range typ.NumField() {
			if f := typ.Field(i); !f.IsExported() || f.Tag.Get("setting") == "-" {
				squashed--
			} else if f.Anonymous {
				squashed += len(conf.FieldsOf(f.Type)) - 1
			}
		}
		require.Equal(t, typ.NumField()+squashed, len(fields), "%s (%s) has a field without a setting tag", at, typ)
		for _, f := range fields {
			walk(f.Type(), at+"."+f.Name())
		}
	}
	walk(reflect.TypeFor[config.Config](), "")
}
