// Package decode turns the decompressed body of a request into columns. It is a
// pure function of bytes: no I/O of its own, no clock, no HTTP.
//
// The judge of what is JSON is the lexer (lexer.go): RFC 8259 to the letter,
// valid UTF-8, no lone surrogates, bounded nesting, any size of token in a fixed
// buffer. It decodes every item that there can be.
//
// Real batches are written by programs: each item has its members in the same
// order with the same spaces as the item before, measure types and timestamps
// repeat. So the text between the values of one item, its layout, predicts the next
// item's (layout.go): where it matches to the byte, only the values are looked
// at. Where it does not, the lexer decodes the item and its layout is the next
// prediction. Both ways give the same columns; TestFastEqualsSlow and FuzzDecode
// hold them to each other and to encoding/json.
package decode
