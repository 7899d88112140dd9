package conf

import "reflect"

// For tests outside of the package, which import the programs' settings.
var (
	IsSection = isSection
	FieldsOf  = fieldsOf
)

// HelpOf returns the help of a field.
func HelpOf(typ reflect.Type, f field) string { return helpOf(typ, f.index) }

func (f field) Name() string       { return f.name }
func (f field) Type() reflect.Type { return f.typ }
