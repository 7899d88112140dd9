// Package xmlstream reads XML documents of any size as a sequence of start and end tags, with a
// fixed amount of memory.
//
//	input ─▶ charset ─▶ window of 64 KiB ─▶ Start and End, with views into the window
//
// It exists because encoding/xml needs several times as long for the publications of traffic
// authorities, which are 50 to 400 MB, and does not bound the length of a token. It reads what such
// documents contain: elements, attributes, text, the five named and the numeric character
// references, CDATA sections, comments and processing instructions, in UTF-8, ISO-8859-1,
// ISO-8859-15 or windows-1252. A document type declaration is an error, so that there are no
// entities to expand and nothing to load. Namespaces are not resolved: names are local names.
//
// Every document that is accepted is accepted by encoding/xml too, with the same elements,
// attributes and text (FuzzReader).
package xmlstream
