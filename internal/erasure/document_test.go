package erasure_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/erasure"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/testkit/document"
)

// proof returns an installer's evidence of two disks.
func proof() map[string]string {
	return map[string]string{
		evidence.EraseMethod: "nvme-sanitize,overwrite",
		"disk_0_id":          "nvme-eui.0025388", "disk_0_method": "nvme-sanitize (block erase)",
		"disk_0_verification": "4096 samples read, all zero", "disk_0_seconds": "12.3",
		"disk_1_id": "ata-VENDOR_MODEL_S1", "disk_1_method": "overwrite", "disk_1_verification": "read whole, all zero",
		"disk_1_seconds": "5400.0", "disk_1_not_used": "ATA sanitize: not supported", "disk_1_hidden_areas": "none",
	}
}

func TestDisks(t *testing.T) {
	got, err := erasure.Disks(proof())
	if err != nil || len(got) != 2 || got[1].NotUsed != "ATA sanitize: not supported" || got[0].Seconds != 12.3 {
		t.Errorf("%+v, %v", got, err)
	}
	for name, c := range map[string]struct {
		change func(map[string]string)
		want   error
	}{
		"not erased at all":         {func(p map[string]string) { delete(p, evidence.EraseMethod) }, erasure.ErrNoDisks},
		"by somebody else":          {func(p map[string]string) { delete(p, "disk_0_id") }, erasure.ErrNoDisks},
		"never read back":           {func(p map[string]string) { delete(p, "disk_1_verification") }, erasure.ErrIncomplete},
		"one that was not erasable": {func(p map[string]string) { p["disk_1_error"] = "input/output error" }, erasure.ErrIncomplete},
	} {
		p := proof()
		c.change(p)
		if got, err := erasure.Disks(p); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestReferenceErasureCertificate(t *testing.T) {
	disks, err := erasure.Disks(proof())
	if err != nil {
		t.Fatal(err)
	}
	ended := time.Date(2026, 5, 4, 12, 30, 0, 0, time.UTC)
	example, err := json.MarshalIndent(erasure.Statement{
		Version: erasure.Version, IssuedAt: ended.Add(time.Hour), IssuedBy: "c-01k…",
		Machine: erasure.Machine{ID: "r42-01", Serial: "J1234"},
		Work: erasure.Work{ID: "op-01k…", Type: "DECOMMISSION", RequestID: "leave", CreatedAt: ended.Add(-2 * time.Hour),
			EndedAt: ended, Installer: "a-01k…", IdentityLevel: "tpm", Trust: "vendor"},
		Disks: disks, History: erasure.History{Entries: 214, Head: "9f2c…"},
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	document.Check(
		t,
		"erasure-certificate.md",
		"Erasure certificates",
		"`ingot certificate MACHINE` gives one for a machine, also for one that was removed. It is a JWS (RFC 7515, flattened\n"+
			"JSON, ES256). Its header `x5c` carries the certificates of the key, of the intermediate and of the installation's\n"+
			"root. The key makes one signature, lives in memory for it, and is for signing documents alone (RFC 9336).\n\n"+
			"`ingot certificate verify FILE` proves it with the root, or its hash, and without a controller. The chain is judged\n"+
			"at the time when the key was made, so a certificate stays good when the certificates of its signer have expired.\n\n"+
			"With `--output pdf`, or `--out FILE.pdf`, it is pages with all that it says, and the JWS attached as\n"+
			"`erasure-certificate.json`. Of such a file `verify` proves the attachment. Pages can be forged: where they are not\n"+
			"those that the same version makes, it says so, and what it shows is what was signed.\n\n"+
			"There is none where an installer has not erased and read back every disk that the operation names: then the answer is\n"+
			"`ERASURE_NOT_PROVEN`. Disks that a rule protects are not erased and not named. An erasure by MAAS has none.\n\n"+
			"What it says:\n\n```json\n"+string(
			example,
		)+"\n```\n\n"+
			"`simulated` is there, and true, where the machine was one of the simulator. `history` is the machine's timeline,\n"+
			"which was recomputed before it was signed; `ingot audit verify` shows the same head as long as nothing follows.\n",
	)
}
