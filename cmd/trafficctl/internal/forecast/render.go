package forecast

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/forecasts"
)

// Formats that a layer can be shown in.
var Formats = []string{"table", "json", "csv", "geojson", "protobuf"}

// Show writes the layer in one of Formats.
func Show(w io.Writer, format string, layer *pb.StreetForecastResponse) error {
	out := bufio.NewWriterSize(w, 64<<10)
	var err error
	switch format {
	case "table":
		err = showTable(out, layer)
	case "csv":
		err = showCSV(out, layer)
	case "geojson":
		err = showGeoJSON(out, layer)
	case forecasts.FormatJSON, forecasts.FormatProtobuf:
		_, err = Write(out, format, All(layer.StreetForecast))
	default:
		err = fmt.Errorf("--format %q: write one of %v", format, Formats)
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

func showTable(w io.Writer, layer *pb.StreetForecastResponse) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STREET\tFROM\tSTART\tEND\tSPEED\tZONE\tOPENLR")
	for _, f := range layer.StreetForecast {
		for _, p := range f.Forecast {
			speed := strconv.FormatFloat(p.Speed, 'g', 6, 64)
			if !p.SpeedValid {
				speed = "-"
			}
			fmt.Fprintf(table, "%d\t%d\t%s\t%s\t%s\t%s\t%s\n", f.Street, f.Fromnode, p.Start, p.End, speed, p.Timezone, printable(f.OpenLRcode))
		}
	}
	return table.Flush()
}

// printable quotes a text that would break the table, or speak to the terminal.
func printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// showCSV writes a row for each period; the columns are those of the feed's query.
func showCSV(w io.Writer, layer *pb.StreetForecastResponse) error {
	out := csv.NewWriter(w)
	rows := [][]string{{"street", "fromnode", "openLRcode", "start", "end", "flow_valid", "speed_valid", "speed", "flow", "timezone"}}
	for _, f := range layer.StreetForecast {
		for _, p := range f.Forecast {
			rows = append(rows, []string{
				strconv.Itoa(int(f.Street)), strconv.Itoa(int(f.Fromnode)), f.OpenLRcode, p.Start, p.End,
				strconv.FormatBool(p.FlowValid), strconv.FormatBool(p.SpeedValid), number(p.Speed), number(p.Flow), p.Timezone,
			})
		}
		if err := out.WriteAll(rows); err != nil {
			return err
		}
		rows = rows[:0]
	}
	return out.WriteAll(rows)
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
