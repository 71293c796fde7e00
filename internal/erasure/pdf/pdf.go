// Package pdf makes pages of an erasure certificate, for people and for archives that take PDF, and finds the
// certificate in them again. The signature is on the attached document; the pages show its content.
package pdf

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"codeberg.org/go-pdf/fpdf"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/gofont/goregular"

	"github.com/ingot-metal/ingot/internal/erasure"
)

// AttachmentName is that of the certificate in the file.
const AttachmentName = "erasure-certificate.json"

// The page is A4; sizes are millimetres, those of fonts points.
const (
	margin, labelWidth, lineHeight = 20, 38, 5
	titleSize, headSize, textSize  = 18, 11, 9
	sans, mono                     = "go", "gomono"
)

// page writes lines of text.
type page struct{ pdf *fpdf.Fpdf }

// Render makes the pages of a certificate that was verified, with the certificate attached. The same certificate makes
// the same bytes.
func Render(document []byte, s erasure.Statement) ([]byte, error) {
	seal, err := erasure.SealOf(document)
	if err != nil {
		return nil, err
	}
	p := page{fpdf.New("P", "mm", "A4", "")}
	p.pdf.SetCatalogSort(true)
	p.pdf.SetCreationDate(s.IssuedAt)
	p.pdf.SetModificationDate(s.IssuedAt)
	p.pdf.SetTitle("Certificate of erasure of "+s.Machine.ID, true)
	p.pdf.SetMargins(margin, margin, margin)
	p.pdf.SetAutoPageBreak(true, margin)
	// fpdf writes into the font that it is given: each page has its own, or the one before would show in the next.
	p.pdf.AddUTF8FontFromBytes(sans, "", bytes.Clone(goregular.TTF))
	p.pdf.AddUTF8FontFromBytes(sans, "B", bytes.Clone(gobold.TTF))
	p.pdf.AddUTF8FontFromBytes(mono, "", bytes.Clone(gomono.TTF))
	p.pdf.SetAttachments([]fpdf.Attachment{{Content: document, Filename: AttachmentName,
		Description: "The signed certificate (JWS)"}})
	p.pdf.AliasNbPages("{pages}")
	p.pdf.SetFooterFunc(func() {
		p.pdf.SetY(-margin + lineHeight)
		p.pdf.SetFont(sans, "", textSize)
		p.pdf.CellFormat(0, lineHeight, fmt.Sprintf("%s, operation %s: page %d of {pages}", printable(s.Machine.ID),
			printable(s.Work.ID), p.pdf.PageNo()), "", 0, "C", false, 0, "")
	})
	p.pdf.AddPage()
	p.statement(s)
	p.disks(s.Disks)
	p.seal(seal)
	var out bytes.Buffer
	if err := p.pdf.Output(&out); err != nil {
		return nil, fmt.Errorf("make the pages: %w", err)
	}
	return out.Bytes(), nil
}

func (p page) statement(s erasure.Statement) {
	p.pdf.SetFont(sans, "B", titleSize)
	p.pdf.MultiCell(0, 2*lineHeight, "Certificate of erasure", "", "L", false)
	if s.Machine.Simulated {
		p.pdf.SetFont(sans, "B", headSize)
		p.pdf.MultiCell(0, lineHeight, "SIMULATED: there is no such machine, and nothing was erased", "", "L", false)
	}
	p.head("Machine and work")
	p.line("Machine", s.Machine.ID)
	p.line("External id", s.Machine.ExternalID)
	p.line("Serial number", s.Machine.Serial)
	p.line("Operation", s.Work.ID+" ("+s.Work.Type+")")
	p.line("Request", s.Work.RequestID)
	p.line("Ordered", at(s.Work.CreatedAt))
	p.line("Ended", at(s.Work.EndedAt))
	p.line("Erased by", s.Work.Installer)
	p.line("Identity", s.Work.IdentityLevel)
	p.line("Rests on", s.Work.Trust)
	p.line("History", fmt.Sprintf("%d entries, the last with the hash", s.History.Entries))
	p.code(s.History.Head)
	p.line("Issued", at(s.IssuedAt))
	p.line("Issued by", "controller "+s.IssuedBy)
	p.line("Form", fmt.Sprint(s.Version))
}

func at(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func (p page) disks(all []erasure.Disk) {
	p.head(fmt.Sprintf("Disks that were erased: %d", len(all)))
	for _, d := range all {
		p.pdf.SetFont(mono, "", textSize)
		p.pdf.MultiCell(0, lineHeight, printable(d.ID), "", "L", false)
		p.line("Erased by", d.Method)
		p.line("Took", fmt.Sprintf("%g s", d.Seconds))
		p.line("Read back", d.Verification)
		p.line("Not used", d.NotUsed)
		p.line("Hidden areas", d.Hidden)
		p.line("Notes", d.Notes)
		p.pdf.Ln(lineHeight / 2)
	}
}

func (p page) seal(s erasure.Seal) {
	p.head("Signature")
	p.line("Form", "JWS (RFC 7515), "+s.Algorithm+", by the key of the certificate")
	p.line("Signer", s.Signer.Subject.String())
	p.label("Its SHA-256")
	p.code(fmt.Sprintf("%x", s.SignerSHA256()))
	p.line("Root", s.Root.Subject.String())
	p.label("Its SHA-256")
	p.code(fmt.Sprintf("%x", s.RootSHA256()))
	p.label("Signature")
	p.code(s.Signature)
	p.head("How to verify it without the controller")
	p.text("What is signed is the file " + AttachmentName + ", which is attached to this one. These pages say what it " +
		"says, and can be forged: trust what the verification shows. Compare the root's SHA-256 with one that you have " +
		"from elsewhere.")
	p.code("ingot certificate verify FILE.pdf --ca-file root.pem")
	p.text(
		"Or by other programs: take the attachment out (pdfdetach -saveall FILE.pdf), verify it as a JWS with the key " +
			"of the first certificate in its header x5c, and verify that certificate up to the root, at the time from " +
			"which it is valid.",
	)
}

func (p page) head(text string) {
	p.pdf.Ln(lineHeight)
	p.pdf.SetFont(sans, "B", headSize)
	p.pdf.MultiCell(0, lineHeight+1, text, "B", "L", false)
	p.pdf.Ln(1)
}

func (p page) text(text string) {
	p.pdf.SetFont(sans, "", textSize)
	p.pdf.MultiCell(0, lineHeight, text, "", "L", false)
}

func (p page) code(text string) {
	p.pdf.SetFont(mono, "", textSize-1)
	p.pdf.SetX(margin + labelWidth)
	p.pdf.MultiCell(0, lineHeight, printable(text), "", "L", false)
}

// line is a label and its value; there is none without a value.
func (p page) line(label, value string) {
	if value == "" {
		return
	}
	p.label(label)
	p.pdf.SetFont(sans, "", textSize)
	p.pdf.MultiCell(0, lineHeight, printable(value), "", "L", false)
}

func (p page) label(label string) {
	p.pdf.SetFont(sans, "B", textSize)
	p.pdf.CellFormat(labelWidth, lineHeight, label, "", 0, "L", false, 0, "")
}

// printable is a text of the fonts' characters alone: Latin, Greek and Cyrillic letters. The attachment has the others.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r > 0x4ff && (r < 0x2010 || r > 0x2122) {
			return '?'
		}
		return r
	}, s)
}

// ErrNone is returned for a file without an attached certificate.
var ErrNone = errors.New("the PDF has no erasure certificate attached")

// Is reports whether the bytes are those of a PDF.
func Is(file []byte) bool { return bytes.HasPrefix(file, []byte("%PDF-")) }

// embedded is the head of an attached file's stream (ISO 32000-1, 7.11.4.1 and 7.3.8).
var embedded = regexp.MustCompile(`(?s)/Type\s*/EmbeddedFile\b(.{0,512}?)\bstream\r?\n`)

// maxAttachment bounds the unpacked attachment, in bytes.
const maxAttachment = 1 << 20

// Document returns the certificate that is attached to a PDF.
func Document(file []byte) ([]byte, error) {
	for _, m := range embedded.FindAllSubmatchIndex(file, -1) {
		head, body := file[m[2]:m[3]], file[m[1]:]
		content, _, whole := bytes.Cut(body, []byte("endstream"))
		if bytes.Contains(head, []byte("/FlateDecode")) {
			content = inflated(body)
		} else if !whole {
			continue
		}
		if content = bytes.TrimSpace(content); bytes.HasPrefix(content, []byte("{")) {
			return content, nil
		}
	}
	return nil, ErrNone
}

// inflated is empty where the stream is not sound.
func inflated(body []byte) []byte {
	z, err := zlib.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil
	}
	content, err := io.ReadAll(io.LimitReader(z, maxAttachment))
	if err != nil || z.Close() != nil {
		return nil
	}
	return content
}
