package public_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// fileOf is the token file of a controller.
type fileOf []access.FileToken

func (f fileOf) OfFile() []access.FileToken { return f }

func (fileOf) Refresh() {}

// TestListsOfAdminsAreCounted: each page has the number of rows of all pages, of the matching ones only.
func TestListsOfAdminsAreCounted(t *testing.T) {
	file := fileOf{{Name: "root", Scope: access.ScopeAdmin}, {Name: "metrics", Scope: access.ScopeRead}}
	r := publictest.NewRig(t, func(c *service.Config) { c.Tokens = file })
	const total = 5
	inForce := total - fillLists(t, r)
	tokens := func(all bool) pager {
		return func(ctx context.Context, size int32, token string) (int, int32, string, error) {
			got, err := r.Admin.ListAPITokens(ctx, &pb.ListAPITokensRequest{All: all, PageSize: size, PageToken: token})
			return len(got.GetTokens()), got.GetTotalSize(), got.GetNextPageToken(), err
		}
	}
	sessions := func(all bool, filter string) pager {
		return func(ctx context.Context, size int32, token string) (int, int32, string, error) {
			got, err := r.Access.ListSessions(ctx,
				&pb.ListSessionsRequest{All: all, Filter: filter, PageSize: size, PageToken: token})
			return len(got.GetSessions()), got.GetTotalSize(), got.GetNextPageToken(), err
		}
	}
	certificates := func(changed bool, machine, order string) pager {
		return func(ctx context.Context, size int32, token string) (int, int32, string, error) {
			got, err := r.Admin.ListBMCCertificates(ctx, &pb.ListBMCCertificatesRequest{
				Changed: changed, MachineId: machine, OrderBy: order, PageSize: size, PageToken: token,
			})
			return len(got.GetCertificates()), got.GetTotalSize(), got.GetNextPageToken(), err
		}
	}
	for name, c := range map[string]struct {
		list pager
		want int
	}{
		"tokens in force":         {tokens(false), len(file) + inForce},
		"all tokens":              {tokens(true), len(file) + total},
		"sessions in force":       {sessions(false, ""), inForce},
		"all sessions":            {sessions(true, ""), total},
		"sessions of one name":    {sessions(true, "name=ada"), 1},
		"certificates":            {certificates(false, "", ""), total},
		"certificates by site":    {certificates(false, "", "site desc"), total},
		"changed certificates":    {certificates(true, "", ""), 3},
		"certificate of one BMC":  {certificates(false, "m-bmc", ""), 1},
		"certificates of a plain": {certificates(false, "m-plain", ""), 0},
	} {
		for _, size := range []int32{0, 2} {
			if got := c.list.walk(t, size, c.want); got != c.want {
				t.Errorf("%s, pages of %d: %d rows, want %d", name, size, got, c.want)
			}
		}
	}
}

// pager reads a page: how many rows it has, how many all pages are said to have, and where the next begins.
type pager func(ctx context.Context, size int32, token string) (rows int, total int32, next string, err error)

// walk counts the rows of all pages, each of which must say how many there are.
func (p pager) walk(t *testing.T, size int32, want int) (rows int) {
	t.Helper()
	publictest.Walk(t, func(token string) (string, error) {
		n, total, next, err := p(t.Context(), size, token)
		if err == nil && int(total) != want {
			t.Errorf("a page says that there are %d rows, want %d", total, want)
		}
		rows += n
		return next, err
	})
	return rows
}

// fillLists makes five tokens, sessions and certificates of BMCs each, and returns how many of the first two have
// ended.
func fillLists(t *testing.T, r *publictest.Rig) (ended int) {
	t.Helper()
	ended = 2
	now := time.Now()
	var seen []access.Seen
	for i, name := range []string{"ada", "bob", "eve", "joe", "sue"} {
		made, err := r.Admin.CreateAPIToken(t.Context(), &pb.CreateAPITokenRequest{Name: name, Scope: "read"})
		if err != nil {
			t.Fatal(err)
		}
		until := now.Add(time.Hour)
		if i < ended {
			until = now.Add(-time.Hour)
			_, err := r.Admin.RevokeAPIToken(t.Context(),
				&pb.RevokeAPITokenRequest{TokenId: made.GetToken().GetTokenId()})
			if err != nil {
				t.Fatal(err)
			}
		}
		seen = append(seen, access.Seen{At: now.Add(-2 * time.Hour), Person: access.Person{
			Issuer: "https://p.test", Subject: name, Name: name, Session: "ss-" + name, ExpiresAt: until,
		}})
		offered := ""
		if i%2 == 0 {
			offered = "ab"
		}
		storetest.Exec(t, r.Store, fmt.Sprintf("INSERT INTO bmc_certificates (site, endpoint, sha256, offered_sha256) "+
			"VALUES ('s-%d', '10.0.0.7', 'cd', '%s')", i, offered))
	}
	if err := r.Store.Access.RecordSessions(t.Context(), seen); err != nil {
		t.Fatal(err)
	}
	for id, endpoint := range map[string]string{"m-bmc": "10.0.0.7", "m-plain": ""} {
		_, err := r.Machines.RegisterMachine(t.Context(), &pb.RegisterMachineRequest{Machine: &pb.Machine{
			MachineId: id, Spec: &pb.MachineSpec{Site: "s-1", BmcEndpoint: endpoint},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	return ended
}
