package conf

import "reflect"

// For tests outside of the package, which import the programs' settings.
var (
	IsSection = isSection
	FieldsOf  = fieldsOf
)

func (f field) Name() string       { return f.name }
func (f field) Type() reflect.Type { return f.typ }
