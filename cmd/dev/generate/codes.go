package main

import (
	"fmt"
	"strings"

	"trafficd/schemas/contract"
)

// requestCodes and itemCodes list the codes of whole requests and of items, in the order of the
// documents.
func requestCodes() (codes []contract.Code) {
	for _, items := range []bool{false, true} {
		for c := contract.NotFound; c < contract.CodeCount; c++ {
			if c.Status() != 0 && c.OfItems() == items {
				codes = append(codes, c)
			}
		}
	}
	return codes
}

func itemCodes() (codes []contract.Code) {
	for c := contract.NotFound; c < contract.CodeCount; c++ {
		if c.OfItems() {
			codes = append(codes, c)
		}
	}
	return codes
}

// contractTables returns the contract with the tables of its sections 1.2, 1.8 and 6.1.
func contractTables(text string) ([]byte, error) {
	rules := []string{"| # | Rule | errorCode | parameter |", "|---|---|---|---|"}
	numbers := map[contract.Code][]string{}
	for i, r := range contract.Rules {
		rules = append(rules, fmt.Sprintf("| %d | %s | %s | %s |", i+1, r.Text, r.Code, r.Parameter))
		numbers[r.Code] = append(numbers[r.Code], fmt.Sprint(i+1))
	}
	requests := []string{"| errorCode | Status | Meaning |", "|---|---|---|"}
	for _, c := range requestCodes() {
		requests = append(requests, fmt.Sprintf("| %s | %d | %s |", c, c.Status(), c.Meaning()))
	}
	items := []string{"| errorCode | Status | Rule of 1.2 |", "|---|---|---|"}
	for _, c := range itemCodes() {
		items = append(items, fmt.Sprintf("| %s | 207 | %s |", c, strings.Join(numbers[c], ", ")))
	}
	states := []string{"| State | Rule | Usual cause |", "|---|---|---|"}
	for _, s := range contract.HealthStates {
		states = append(states, fmt.Sprintf("| `%s` | %s | %s |", s.Name, s.Description(), s.Cause))
	}
	var err error
	for _, t := range []struct {
		before string
		rows   []string
	}{{"### 1.2 ", rules}, {"Codes of whole requests:", requests}, {"Codes of single items,", items}, {"### 1.8 ", states}} {
		if text, err = replaceTable(text, t.before, t.rows); err != nil {
			return nil, err
		}
	}
	return []byte(text), nil
}

// replaceTable replaces the first table after the line that starts with before.
func replaceTable(text, before string, rows []string) (string, error) {
	at := strings.Index(text, "\n"+before)
	if at < 0 {
		return "", fmt.Errorf("cannot find %q", before)
	}
	from := at + strings.Index(text[at:], "\n|") + 1
	to := from + strings.Index(text[from:], "\n\n")
	return text[:from] + strings.Join(rows, "\n") + text[to:], nil
}

// openAPICodes returns the OpenAPI document with the schemas ErrorCode and ItemErrorCode.
func openAPICodes(text string) ([]byte, error) {
	from, to := strings.Index(text, "\n    ErrorCode:\n"), strings.Index(text, "\n    StreetForecastResponse:\n")
	if from < 0 || to < from {
		return nil, fmt.Errorf("cannot find the schemas ErrorCode to StreetForecastResponse")
	}
	var b strings.Builder
	b.WriteString(`
    ErrorCode:
      type: string
      description: |
        Why the whole request was rejected, with the HTTP status:

        | errorCode | status | meaning |
        |---|---|---|
`)
	for _, c := range requestCodes() {
		status := fmt.Sprint(c.Status())
		if c == contract.InvalidParameter {
			status += ", 431, 505"
		}
		fmt.Fprintf(&b, "        | %s | %s | %s |\n", c, status, c.Meaning())
	}
	b.WriteString("      enum:\n")
	for _, c := range requestCodes() {
		fmt.Fprintf(&b, "        - %s\n", c)
	}
	b.WriteString(`    ItemErrorCode:
      type: string
      description: |
        Why a measurement was rejected: the first rule in this order that it breaks.

        | errorCode | rule | parameter |
        |---|---|---|
`)
	for _, r := range contract.Rules {
		fmt.Fprintf(&b, "        | %s | %s | %s |\n", r.Code, r.Text, r.Parameter)
	}
	b.WriteString("      enum:\n")
	for _, c := range itemCodes() {
		fmt.Fprintf(&b, "        - %s\n", c)
	}
	b.WriteString("      x-enum-varnames: # some of the codes are in ErrorCode too; in Go both would be constants with the same name\n")
	for _, c := range itemCodes() {
		fmt.Fprintf(&b, "        - ITEM_%s\n", c)
	}
	b.WriteString(`    HealthState:
      type: string
      description: |
        The test that the detector fails. Others may be added.

        | state | rule | usual cause |
        |---|---|---|
`)
	for _, s := range contract.HealthStates {
		fmt.Fprintf(&b, "        | %s | %s | %s |\n", s.Name, s.Description(), s.Cause)
	}
	return []byte(text[:from] + strings.TrimSuffix(b.String(), "\n") + text[to:]), nil
}
