package evaluate

import (
	"bytes"
	"fmt"
	"io"
	"slices"
)

var colours = []string{"#1b6ca8", "#b0b0b0", "#8ac6a0", "#e09f3e"}

// Plot writes a bar chart of the mean absolute errors as SVG.
func Plot(w io.Writer, results []Result) error {
	const left, bottom, height, bar, gap = 50, 270, 230, 26, 40
	highest := 0.0
	for _, r := range results {
		highest = max(highest, slices.Max(r.MAE[:]))
	}
	width := left + len(results)*(len(Methods)*bar+gap) + 180
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="310" font-family="sans-serif" font-size="12">`+"\n", width)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+
		`<text x="%d" y="20" font-size="14">Mean absolute error</text>`+"\n", left)
	for i, r := range results {
		x := left + i*(len(Methods)*bar+gap)
		for m := range Methods {
			size := r.MAE[m] / highest * height
			fmt.Fprintf(&b, `<rect x="%d" y="%.1f" width="%d" height="%.1f" fill="%s"/>`, x+m*bar, bottom-size, bar-3, size, colours[m])
			fmt.Fprintf(&b, `<text x="%d" y="%.1f" font-size="9">%.2f</text>`+"\n", x+m*bar, bottom-size-3, r.MAE[m])
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d">%d min</text>`+"\n", x+len(Methods)*bar/2-18, bottom+18, r.Minutes)
	}
	for m, name := range Methods {
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="12" height="12" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n",
			width-160, 50+m*20, colours[m], width-142, 60+m*20, name)
	}
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}
