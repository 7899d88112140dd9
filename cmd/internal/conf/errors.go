package conf

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Section returns the errors joined in err, each of which starts with a key. It adds the section's
// name to the key, and appends the origin of the setting.
func (o Origins) Section(name string, err error) error {
	var errs []error
	for _, err := range Leaves(err) {
		text := join(name, err.Error())
		for key := keyAtStart.FindString(text); key != ""; key = key[:max(0, strings.LastIndexByte(key, '.'))] {
			if from := o[key]; from != "" {
				text += " (from " + from + ")"
				break
			}
		}
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

var keyAtStart = regexp.MustCompile(`^[a-z0-9_.]+`)

// Invalid returns the error with which a program rejects its settings, with one problem per line.
func Invalid(problems error) error {
	return fmt.Errorf("cannot use the configuration:\n  %s", strings.ReplaceAll(problems.Error(), "\n", "\n  "))
}

// Leaves returns the errors joined in err, at any depth, or only err if it joins none.
func Leaves(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var list []error
	for _, err := range joined.Unwrap() {
		list = append(list, Leaves(err)...)
	}
	return list
}
