// Package decode turns the decompressed body of a request into columns: a pure function without
// I/O, clock or HTTP.
//
// The lexer (lexer.go) decides what is valid: strict RFC 8259, valid UTF-8, no lone surrogates,
// bounded nesting, tokens of any size in a fixed buffer. It can decode every item.
//
// Real batches are written by programs: all items have the same members in the same order with the
// same white space, and measure types and timestamps repeat. So the text between the values of one
// item, its layout, predicts the next item (layout.go): if the text matches byte for byte, only the
// values are examined. Otherwise the lexer decodes the item, and its layout becomes the next
// prediction. Both ways yield the same columns; TestFastEqualsSlow and FuzzDecode compare them with
// each other and with encoding/json.
package decode
