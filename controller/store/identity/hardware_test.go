package identity_test

import (
	"strings"
	"testing"

	identitystore "github.com/ingot-metal/ingot/controller/store/identity"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// TestACardThatHasMoved: a system with the machine's network card on another machine's board is not certified as its
// installer. The machine itself is, and so is one that shows nothing.
func TestACardThatHasMoved(t *testing.T) {
	t.Parallel()
	r := storetest.NewMetalRig(t)
	storetest.Exec(t, r.Store, `INSERT INTO inventories (machine_id, reported_at, agent_id, hash, document) VALUES
		('m-1', now(), 'a', 'h', '{"system": {"uuid": "4c4c4544-0031-3510-8052-b7c04f4e4b32", "serial": "SN-1"}}')`)
	_, token := r.Reimaging("1")
	claim := func(key string, f hwid.Facts) *identitystore.Vouched {
		v, err := r.Store.Identities.Vouch(t.Context(), identitystore.VouchRequest{SiteAgentID: r.Site.ID, MachineID: "m-1",
			BootToken: token, MAC: storetest.MetalMAC, PublicKeyDigest: []byte(key), Hardware: f.Fingerprint(),
		}, storetest.NewSigner().SignFor, storetest.Now())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	v := claim("k1", hwid.Facts{UUID: "4c4c4544-0031-3510-8052-b7c04f4e4b33", Serial: "SN-2"})
	if v.Refused == nil || v.Refused.Reason != "HARDWARE_MISMATCH" || v.AgentID != "" ||
		!strings.Contains(v.Refused.Message, "SN-2, and was SN-1") {
		t.Fatalf("another machine got %+v, %+v", v, v.Refused)
	}
	if v := claim("k2", hwid.Facts{UUID: "4c4c4544-0031-3510-8052-b7c04f4e4b32", Serial: "SN-1"}); v.AgentID == "" {
		t.Errorf("the machine itself got %+v", v.Refused)
	}
	if v := claim("k2", hwid.Facts{V1: "older"}); v.AgentID == "" {
		t.Errorf("an older installer got %+v", v.Refused)
	}
}
