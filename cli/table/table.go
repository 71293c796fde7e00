// Package table reads the tables that people export from spreadsheets and from other tools: CSV in every form that is
// met. It is the one reader of CSV; no other code parses it.
package table

import (
	"bytes"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MostBytes bounds a file, MostCells a line.
const (
	MostBytes = 64 << 20
	MostCells = 1000
)

// Cell is one value, without surrounding space, and where it stands: line and column in bytes, from 1.
type Cell struct {
	Text      string
	Line, Col int
}

// Table is a header and what stands below it. Rows without any text are left out.
type Table struct {
	Header []Cell
	Rows   [][]Cell
}

// Errors of Read and Text, beside those of encoding/csv, which name line and column.
var (
	ErrTooLarge = errors.New("larger than 64 MiB")
	ErrNotText  = errors.New("not text in UTF-8 or UTF-16; export the file again as CSV in UTF-8")
	ErrEmpty    = errors.New("the file is empty")
)

// Text decodes UTF-8, and UTF-16 with a byte order mark, and returns it without the mark. Lines that end as on old
// Macintoshes and on Windows end in \n.
func Text(raw []byte) (string, error) {
	if len(raw) > MostBytes {
		return "", ErrTooLarge
	}
	raw, err := inUTF8(raw)
	if err != nil {
		return "", err
	}
	for n, line := 1, raw; len(line) > 0; n++ {
		one, rest, _ := bytes.Cut(line, []byte("\n"))
		if !utf8.Valid(one) || bytes.IndexByte(one, 0) >= 0 {
			return "", fmt.Errorf("line %d: %w", n, ErrNotText)
		}
		line = rest
	}
	text := strings.ReplaceAll(string(raw), "\r\n", "\n")
	return strings.ReplaceAll(text, "\r", "\n"), nil
}

func inUTF8(raw []byte) ([]byte, error) {
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(raw, []byte("\xff\xfe")):
		order = binary.LittleEndian
	case bytes.HasPrefix(raw, []byte("\xfe\xff")):
		order = binary.BigEndian
	default:
		return bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf")), nil
	}
	if len(raw)%2 != 0 {
		return nil, ErrNotText
	}
	units := make([]uint16, 0, len(raw)/2)
	for at := 2; at < len(raw); at += 2 {
		units = append(units, order.Uint16(raw[at:]))
	}
	return []byte(string(utf16.Decode(units))), nil
}

// separators are what spreadsheets put between cells, by country and by choice.
const separators = ",;\t|"

// Read reads a table. The separator is the one that the header has most of, or what a first line such as "sep=;" names.
func Read(raw []byte) (Table, error) {
	text, err := Text(raw)
	if err != nil {
		return Table{}, err
	}
	comma, named := separatorOf(text)
	r := csv.NewReader(strings.NewReader(text))
	r.Comma, r.FieldsPerRecord, r.TrimLeadingSpace = comma, -1, comma != '\t'
	var out Table
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Table{}, err
		}
		if len(record) > MostCells {
			line, _ := r.FieldPos(0)
			return Table{}, fmt.Errorf("line %d: more than %d cells", line, MostCells)
		}
		row, filled := cellsOf(r, record)
		switch {
		case named:
			named = false
		case !filled:
		case out.Header == nil:
			out.Header = row
		default:
			out.Rows = append(out.Rows, row)
		}
	}
	if out.Header == nil {
		return Table{}, ErrEmpty
	}
	return out, nil
}

func cellsOf(r *csv.Reader, record []string) (row []Cell, filled bool) {
	for i, text := range record {
		line, col := r.FieldPos(i)
		row = append(row, Cell{strings.TrimSpace(text), line, col})
		filled = filled || row[i].Text != ""
	}
	return row, filled
}

// separatorOf looks outside of quotes. named reports that the first line names the separator and is no header.
func separatorOf(text string) (comma rune, named bool) {
	first, _, _ := strings.Cut(strings.TrimLeft(text, "\n"), "\n")
	if name, ok := strings.CutPrefix(strings.ToLower(strings.Trim(first, `"`)), "sep="); ok && len(name) == 1 &&
		strings.Contains(separators, name) {
		return rune(name[0]), true
	}
	counts, quoted := map[rune]int{}, false
	for _, c := range first {
		switch {
		case c == '"':
			quoted = !quoted
		case !quoted:
			counts[c]++
		}
	}
	comma = ','
	for _, c := range separators {
		if counts[c] > counts[comma] {
			comma = c
		}
	}
	return comma, false
}
