// Package decode converts the decompressed body of a request to columns. It is a pure function of
// the text, without I/O, clock or HTTP.
//
// The lexer (lexer.go) can decode every item. It accepts strict RFC 8259 with valid UTF-8, no lone
// surrogates and limited nesting. Tokens may have any size; the buffer is fixed.
//
// Real batches are written by programs: all items have the same members in the same order with the
// same white space, and measure types and timestamps repeat. So the text between the values of one
// item, its layout, predicts the next item (layout.go). If the text of the next item matches the
// layout byte for byte, only the values are examined. Otherwise the lexer decodes the item, and its
// layout becomes the next prediction. The columns are the same either way: TestFastEqualsSlow and
// FuzzDecode compare the two with each other and with encoding/json.
package decode
