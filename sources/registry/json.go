package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// parseJSON reads a list of codes: an array of strings, or of objects with the code in the named
// member, or an object whose member `detectors` is such an array.
func parseJSON(body []byte, member string) ([]string, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("invalid UTF-8: save the list as UTF-8")
	}
	list, err := items(body)
	if err != nil {
		return nil, err
	}
	codes := make([]string, len(list))
	for i, raw := range list {
		if codes[i], err = code(raw, member); err != nil {
			return nil, fmt.Errorf("entry %d of the list: %w", i, err)
		}
	}
	return codes, nil
}

func items(body []byte) ([]json.RawMessage, error) {
	var list []json.RawMessage
	if !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) {
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, jsonError(err)
		}
		return list, nil
	}
	var wrapped struct {
		Detectors *[]json.RawMessage `json:"detectors"`
	}
	if err := json.Unmarshal(body, &wrapped); err != nil {
		return nil, jsonError(err)
	}
	if wrapped.Detectors == nil {
		return nil, errors.New("the object has no array `detectors`")
	}
	return *wrapped.Detectors, nil
}

func code(raw json.RawMessage, member string) (string, error) {
	if raw[0] == '{' {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			return "", err
		}
		value, ok := object[member]
		if !ok {
			return "", fmt.Errorf("no member %q", member)
		}
		raw = value
	}
	if raw[0] != '"' {
		return "", fmt.Errorf("%.64s is not a string", raw)
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err
}

func jsonError(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("invalid or truncated JSON at byte %d: %w", syntax.Offset, err)
	}
	return fmt.Errorf("not a list of detectors: %w", err)
}
