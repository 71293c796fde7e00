package hwid

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/internal/safetext"
)

// Facts are what a machine shows, or is known by. An empty fact is unknown: not read, or left unset by firmware.
type Facts struct {
	// UUID, Serial, Board and TPM are strong: they stay with the mainboard. UUID and Serial are the system's (SMBIOS 3.7,
	// 7.2), Board is the mainboard's serial number, TPM a digest of the endorsement key.
	UUID   string `json:"uuid,omitempty"`
	Serial string `json:"serial,omitempty"`
	Board  string `json:"board,omitempty"`
	TPM    string `json:"tpm,omitempty"`
	// Chassis and MACs are weak: enclosures are shared, and cards are swapped. MACs are as MAC returns them, sorted.
	Chassis string   `json:"chassis,omitempty"`
	MACs    []string `json:"macs,omitempty"`
	// Unread names strong facts that are there, and that the agent may not read.
	Unread []string `json:"unread,omitempty"`
	// V1 is the fingerprint of older agents: one hash of all facts, every address of the system among them.
	V1 string `json:"v1,omitempty"`
	// Registered reports that an operator has registered these facts, so that another strong fact is refused.
	Registered bool `json:"-"`
}

// version2 is before the facts in a fingerprint. The older fingerprints are hexadecimal digits.
const version2 = "2:"

// mostFingerprint is more bytes than an agent's fingerprint has.
const mostFingerprint = 8 << 10

// Fingerprint returns the facts as one text, the same for the same facts; "" where nothing is known.
func (f Facts) Fingerprint() string {
	b, err := json.Marshal(f)
	if err != nil || string(b) == "{}" {
		return ""
	}
	return version2 + string(b)
}

// ParseFingerprint reads a fingerprint of any version. A text that is none of version 2 is one of version 1.
func ParseFingerprint(text string) Facts {
	var f Facts
	rest, ok := strings.CutPrefix(text, version2)
	if !ok || len(text) > mostFingerprint || json.Unmarshal([]byte(rest), &f) != nil {
		return Facts{V1: text}
	}
	return f
}

// Outcome is what a comparison of facts means.
type Outcome int

// The outcomes, the gravest last.
const (
	// Same: nothing differs.
	Same Outcome = iota
	// Remarked: it is the same machine, and weak facts differ or strong ones were not read.
	Remarked
	// Contested: it is other hardware than was observed before.
	Contested
	// Refused: it is other hardware than an operator has registered.
	Refused
)

// Verdict is the result of a comparison.
type Verdict struct {
	Outcome Outcome
	// Confirmed reports whether a strong fact is the same.
	Confirmed bool
	// Notes name each difference, the strong ones first.
	Notes []string
}

// Other reports whether the hardware is another machine's, as far as anything shows.
func (v Verdict) Other() bool { return v.Outcome >= Contested }

// String returns the notes as one line; "" of the same hardware.
func (v Verdict) String() string { return strings.Join(v.Notes, "; ") }

// Judge compares the hardware that a machine is known by with the hardware that is shown now. A strong fact that
// differs decides. Without a strong fact on both sides, weak facts of which none is the same decide. Everything else is
// a remark: an unknown fact is no accusation.
func Judge(known, now Facts) Verdict {
	if !known.read() || !now.read() {
		return judgeVersions(known, now)
	}
	j := judgement{registered: known.Registered}
	j.strong("the system's UUID", known.UUID, now.UUID, same(SameUUID(known.UUID, now.UUID)))
	j.strong("the system's serial number", known.Serial, now.Serial, known.sameSerial(now))
	j.strong("the mainboard's serial number", known.Board, now.Board, strings.EqualFold(known.Board, now.Board))
	j.strong("the TPM's key", known.TPM, now.TPM, strings.EqualFold(known.TPM, now.TPM))
	j.weak(known, now)
	return j.verdict()
}

// sameSerial compares the system's serial number. People register whichever of the serial numbers they find on a label.
func (f Facts) sameSerial(now Facts) bool {
	return strings.EqualFold(f.Serial, now.Serial) ||
		f.Registered && (strings.EqualFold(f.Serial, now.Board) || strings.EqualFold(f.Serial, now.Chassis))
}

// Compare is Judge of two fingerprints.
func Compare(known, now string) Verdict { return Judge(ParseFingerprint(known), ParseFingerprint(now)) }

// read reports whether facts are known one by one.
func (f Facts) read() bool {
	return f.UUID+f.Serial+f.Board+f.TPM+f.Chassis != "" || len(f.MACs)+len(f.Unread) > 0
}

// judgeVersions compares where one side, or both, has no more than the hash of an older agent. Another hash of another
// version is taken once: the facts that replace it are compared from then on.
func judgeVersions(known, now Facts) Verdict {
	switch {
	case known.V1 == now.V1 || !known.read() && known.V1 == "":
		return Verdict{}
	case !now.read() && now.V1 == "":
		return Verdict{Outcome: Remarked, Notes: []string{"no hardware was read"}}
	case known.read() || now.read():
		return Verdict{Outcome: Remarked, Notes: []string{"the hardware was counted by another version of the agent"}}
	}
	return Verdict{Outcome: Contested, Notes: []string{"the hardware fingerprint is another"}}
}

// judgement collects what differs.
type judgement struct {
	registered bool
	// compared and confirmed are of strong facts: one was known on both sides, and one was the same.
	compared, confirmed, other bool
	notes, remarks             []string
}

func (j *judgement) strong(name, known, now string, same bool) {
	switch {
	case known == "":
	case same:
		j.compared, j.confirmed = true, true
	case now == "":
		j.remarks = append(j.remarks, name+" was not read")
	default:
		j.compared, j.other = true, true
		j.notes = append(j.notes, j.differs(name, known, now))
	}
}

func (j *judgement) differs(name, known, now string) string {
	if j.registered {
		return fmt.Sprintf("%s is %s, and %s is registered", name, shown(now), shown(known))
	}
	return fmt.Sprintf("%s is %s, and was %s", name, shown(now), shown(known))
}

// mostShown is how many characters of a fact are shown.
const mostShown = 64

func shown(text string) string { return safetext.Bounded(safetext.Line(text), mostShown) }

// weak compares the cards and the chassis. Blades share a chassis: only a different one is evidence.
func (j *judgement) weak(known, now Facts) {
	kept := 0
	for _, mac := range known.MACs {
		if slices.Contains(now.MACs, mac) {
			kept++
		} else if len(now.MACs) > 0 {
			j.remarks = append(j.remarks, "network card "+shown(mac)+" is gone")
		}
	}
	for _, mac := range now.MACs {
		if len(known.MACs) > 0 && !slices.Contains(known.MACs, mac) {
			j.remarks = append(j.remarks, "network card "+shown(mac)+" is new")
		}
	}
	if len(known.MACs) > 0 && len(now.MACs) == 0 {
		j.remarks = append(j.remarks, "no network card was found")
	}
	chassis := known.Chassis != "" && now.Chassis != ""
	moved := chassis && !strings.EqualFold(known.Chassis, now.Chassis)
	if moved {
		j.remarks = append(j.remarks, j.differs("the chassis' serial number", known.Chassis, now.Chassis))
	}
	cards := len(known.MACs) > 0 && len(now.MACs) > 0
	if !j.compared && (cards && kept == 0 || !cards && moved) {
		j.other = true
	}
}

func (j *judgement) verdict() Verdict {
	v := Verdict{Confirmed: j.confirmed, Notes: append(j.notes, j.remarks...)}
	switch {
	case j.other && j.registered:
		v.Outcome = Refused
	case j.other:
		v.Outcome = Contested
	case len(v.Notes) > 0:
		v.Outcome = Remarked
	}
	return v
}

func same(same, _ bool) bool { return same }

// Known returns the fingerprint that a machine is known by once it has shown another one: that one, with the facts
// that could not be read this time. Other hardware replaces everything. Where nothing is added it is the text that was
// shown, which controllers of other versions compare.
func Known(before, shown string) string {
	known, now := ParseFingerprint(before), ParseFingerprint(shown)
	switch {
	case shown == "":
		return before
	case !known.read() || !now.read() || Judge(known, now).Other():
		return shown
	}
	kept := false
	keep := func(now *string, known string) {
		if *now == "" && known != "" {
			*now, kept = known, true
		}
	}
	keep(&now.UUID, known.UUID)
	keep(&now.Serial, known.Serial)
	keep(&now.Board, known.Board)
	keep(&now.TPM, known.TPM)
	if len(now.MACs) == 0 && len(known.MACs) > 0 {
		now.MACs, kept = known.MACs, true
	}
	if !kept {
		return shown
	}
	return now.Fingerprint()
}

// LocalMAC reports whether an address is locally administered (IEEE 802, U/L bit): software chooses it, and no maker
// keeps it unique. It is no identity unless an operator has registered it.
func LocalMAC(mac string) bool {
	b, err := MACBytes(mac)
	return err == nil && b[0]&2 != 0
}

// swapped returns a UUID with its first three fields in the other byte order; "" for anything else. Firmware before
// SMBIOS 2.6, and BMCs, write them in network order (DSP0134 3.7, 7.2.1).
func swapped(id string) string {
	b, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(b) != 16 || !uuidForm.MatchString(id) {
		return ""
	}
	slices.Reverse(b[:4])
	slices.Reverse(b[4:6])
	slices.Reverse(b[6:8])
	return UUID(hex.EncodeToString(b))
}
