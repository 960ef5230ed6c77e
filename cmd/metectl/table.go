package main

import (
	"io"
	"strings"
	"unicode/utf8"
)

// A table is for people: columns two spaces apart, no borders. On a terminal its last
// column is cut to fit; the others are never wider than widestCell.
type table struct {
	rows  [][]string
	right map[int]bool // columns of numbers
	gap   bool         // an empty line goes before
}

func newTable(head ...string) *table {
	return &table{rows: [][]string{head}, right: map[int]bool{}}
}

// alignRight aligns columns to the right, counted from 0.
func (t *table) alignRight(columns ...int) *table {
	for _, c := range columns {
		t.right[c] = true
	}
	return t
}

// widestCell is how many letters a cell before the last one may have: a name can have
// 256, and would push all others out of sight. -o name and -o json have it whole.
const widestCell = 64

func (t *table) add(cells ...string) {
	for i := range cells {
		cells[i] = strings.ReplaceAll(printable(cells[i]), "\n", `\n`)
		if i < len(cells)-1 {
			cells[i] = cut(cells[i], widestCell)
		}
	}
	t.rows = append(t.rows, cells)
}

// write prints the table. width is that of the terminal; 0: no limit.
func (t *table) write(w io.Writer, width int) error {
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	if t.gap {
		b.WriteByte('\n')
	}
	for _, row := range t.rows {
		b.WriteString(cut(t.line(row, widths), width))
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *table) line(row []string, widths []int) string {
	var b strings.Builder
	for i, cell := range row {
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if t.right[i] {
			b.WriteString(pad + cell)
		} else {
			b.WriteString(cell + pad)
		}
		b.WriteString("  ")
	}
	return strings.TrimRight(b.String(), " ")
}

func cut(line string, width int) string {
	if width <= 1 || utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:width-1]) + "…"
}
