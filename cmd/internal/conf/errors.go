package conf

import (
	"errors"
	"strings"
)

// Section returns the errors joined in err. It adds the section's name to the key that each starts
// with, and appends the origin of the setting.
func (o Origins) Section(name string, err error) error {
	var errs []error
	for _, err := range leaves(err) {
		text := join(name, err.Error())
		errs = append(errs, errors.New(text+o.of(text)))
	}
	return errors.Join(errs...)
}

// leaves returns the errors that errors.Join has joined, at any depth.
func leaves(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var list []error
	for _, err := range joined.Unwrap() {
		list = append(list, leaves(err)...)
	}
	return list
}

// of returns the origin of the setting whose key the text starts with.
func (o Origins) of(text string) string {
	longest := ""
	for key := range o {
		rest, ok := strings.CutPrefix(text, key)
		if ok && len(key) > len(longest) && (rest == "" || !isKeyByte(rest[0])) {
			longest = key
		}
	}
	if longest == "" {
		return ""
	}
	return " (from " + o[longest] + ")"
}

func isKeyByte(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' }
