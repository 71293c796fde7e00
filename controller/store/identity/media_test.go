package identity_test

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/identity"
	identitystore "github.com/ingot-metal/ingot/controller/store/identity"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failure"
)

// TestMediaIsProven: a machine that comes into the installer by virtual media is certified for the proof alone, which a
// box on the segment with its MAC address and boot token does not have; and so it satisfies a site that requires the
// level, where a way by the network is refused before it begins.
func TestMediaIsProven(t *testing.T) {
	t.Parallel()
	r := storetest.NewMetalRig(t)
	if err := r.Store.Identities.RequireIdentity(t.Context(), "lab", "", identity.LevelMedia, "ann", "",
		storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if err := r.TryReimage("by the network"); !failure.HasReason(err, "IDENTITY_LEVEL_TOO_LOW") {
		t.Errorf("by the network: %v", err)
	}
	storetest.Exec(t, r.Store, `UPDATE machines SET spec = spec || '{"install_path": "media"}' WHERE machine_id = 'm-1'`)
	_, token := r.Reimaging("1")
	vouch := func(key string, media bool) *identitystore.Vouched {
		t.Helper()
		v, err := r.Store.Identities.Vouch(t.Context(), identitystore.VouchRequest{
			SiteAgentID: r.Site.ID, MachineID: "m-1", BootToken: token, MAC: storetest.MetalMAC, PublicKeyDigest: []byte(key),
			Media: media,
		}, storetest.NewSigner().SignFor, storetest.Now())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := vouch(
		"box",
		false,
	); v.Refused == nil || v.Refused.Reason != "MEDIA_PROOF_MISSING" || v.Contested ||
		v.AgentID != "" {
		t.Errorf("a box without the proof got %+v", v)
	}
	if n := r.Verbs("REFUSE_INSTALLER"); n != 1 {
		t.Errorf("%d rows of audit", n)
	}
	if v := vouch("machine", true); v.Refused != nil || v.AgentID == "" {
		t.Errorf("the machine got %+v", v)
	}
	if got := storetest.Machine(t, r.Store, "m-1").GetStatus().GetIdentityLevel(); got != "media" {
		t.Errorf("the machine's level is %q", got)
	}
	d, err := r.Store.Sites.SiteDocument(t.Context(), "lab")
	if err != nil {
		t.Fatal(err)
	}
	if a := d.GetAssignments()[0]; a.GetMedia() == nil || len(a.GetMedia().GetSecret()) > 0 {
		t.Errorf("the stored assignment is %v", a)
	}
}
