package report

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// Sizes of plots, in pixels, and their colours: green keeps to its limit, orange does not, grey is the limit.
const (
	plotWidth, labelWidth, barHeight, margin = 860.0, 380.0, 22.0, 24.0

	green, orange, grey = "#2e7d4f", "#d9730d", "#8a8a8a"
)

// drawing collects the elements of one SVG.
type drawing struct{ strings.Builder }

func (d *drawing) line(x1, y1, x2, y2 float64, colour, dash string) {
	fmt.Fprintf(d, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-dasharray="%s"/>`+"\n",
		x1, y1, x2, y2, colour, dash)
}

func (d *drawing) text(x, y float64, anchor, s string) {
	var escaped strings.Builder
	if err := xml.EscapeText(&escaped, []byte(s)); err != nil {
		panic(err) // a strings.Builder takes every byte
	}
	fmt.Fprintf(d, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, escaped.String())
}

func (d *drawing) polyline(points [][2]float64, colour, dash string) {
	coordinates := make([]string, 0, len(points))
	for _, p := range points {
		coordinates = append(coordinates, fmt.Sprintf("%.1f,%.1f", p[0], p[1]))
	}
	fmt.Fprintf(d, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`+"\n",
		strings.Join(coordinates, " "), colour, dash)
}

func (d *drawing) svg(height float64) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" `+
		`font-family="sans-serif" font-size="12">`+"\n"+`<rect width="100%%" height="100%%" fill="white"/>`+"\n%s</svg>\n",
		plotWidth, height, plotWidth, height, d.String())
}

// bars draws each figure that has a limit as a share of it. The vertical line is the limit. It is empty without limits.
func (r Run) bars() string {
	const most, shareWidth = 2.0, plotWidth - labelWidth - 70
	var d drawing
	y := margin
	for _, f := range r.Figures {
		if f.Limit == nil || f.Limit.Value <= 0 {
			continue
		}
		share, colour := f.Value/f.Limit.Value, green
		if !f.Met() {
			colour = orange
		}
		sign := "≤"
		if f.Limit.AtLeast {
			sign = "≥"
		}
		width := math.Min(share, most) / most * shareWidth
		d.text(labelWidth-8, y+barHeight*0.6, "end", f.What)
		fmt.Fprintf(&d, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n",
			labelWidth, y, width, barHeight*0.75, colour)
		d.text(labelWidth+width+6, y+barHeight*0.6, "start", fmt.Sprintf("%.2f %s 1", share, sign))
		y += barHeight
	}
	if y == margin {
		return ""
	}
	at := labelWidth + shareWidth/most
	d.line(at, margin-8, at, y, grey, "4 3")
	d.text(at, margin-12, "middle", "limit")
	return d.svg(y + margin/2)
}

// lines draws the curve of a run: figures over X by powers of two, beside their limits. It is empty without a curve.
func (r Run) lines() string {
	const height, left, right = 300.0, 70.0, 30.0
	if r.Curve == nil {
		return ""
	}
	var points []Figure
	top := 0.0
	for _, f := range r.Figures {
		if f.X > 0 && f.Limit != nil {
			points = append(points, f)
			top = math.Max(top, math.Max(f.Value, f.Limit.Value))
		}
	}
	if len(points) < 2 || top == 0 {
		return ""
	}
	first, last := math.Log2(points[0].X), math.Log2(points[len(points)-1].X)
	x := func(v float64) float64 { return left + (math.Log2(v)-first)/(last-first)*(plotWidth-left-right) }
	y := func(v float64) float64 { return height - 2*margin - v/top*(height-4*margin) }
	var d drawing
	d.text(left, margin-6, "start", r.Curve.Title)
	for i := range 5 {
		v := top * float64(i) / 4
		d.line(left, y(v), plotWidth-right, y(v), "#e0e0e0", "")
		d.text(left-8, y(v)+4, "end", quantity(math.Round(v), ""))
	}
	measured, limits := make([][2]float64, 0, len(points)), make([][2]float64, 0, len(points))
	for _, f := range points {
		measured = append(measured, [2]float64{x(f.X), y(f.Value)})
		limits = append(limits, [2]float64{x(f.X), y(f.Limit.Value)})
		d.text(x(f.X), height-2*margin+18, "middle", quantity(f.X, ""))
	}
	d.text((left+plotWidth-right)/2, height-2*margin+36, "middle", r.Curve.X)
	d.polyline(limits, grey, "4 3")
	d.polyline(measured, green, "")
	d.line(plotWidth-330, margin-10, plotWidth-310, margin-10, green, "")
	d.text(plotWidth-305, margin-6, "start", r.Curve.Measured)
	d.line(plotWidth-190, margin-10, plotWidth-170, margin-10, grey, "4 3")
	d.text(plotWidth-165, margin-6, "start", r.Curve.Limit)
	return d.svg(height)
}
