package savedview

import (
	"testing"

	"github.com/ingot-metal/ingot/internal/failure"
)

var (
	ada    = Caller{Actor: "ada", Identity: "1"}
	bob    = Caller{Actor: "bob", Identity: "2", MayShare: true}
	admin  = Caller{Actor: "root", Identity: "3", MayShare: true, Admin: true}
	mine   = View{Name: "v", Title: "t", Owner: "1", CreatedBy: "ada"}
	shared = View{Name: "v", Title: "t", Owner: "1", CreatedBy: "ada", Shared: true}
)

func TestRefusalsOfViewsInTheirOrder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refused error
		kind    failure.Kind
		field   string
	}{
		"a name of another's personal view": {bob.NameFree(&mine), failure.KindAlreadyExists, "view.name"},
		"another's shared view":             {bob.Admit(&shared, mine, MaxOfOwner, 0), failure.KindDenied, "view.name"},
		"another's made personal":           {admin.Admit(&shared, mine, 0, 0), failure.KindInvalid, "view.shared"},
		"shared without the right":          {ada.Admit(nil, shared, MaxOfOwner, 0), failure.KindDenied, "view.shared"},
		"too many of one owner":             {ada.Admit(nil, mine, MaxOfOwner, MaxOfAll), failure.KindPrecondition, "view"},
		"too many of all":                   {ada.Admit(nil, mine, MaxOfOwner-1, MaxOfAll), failure.KindPrecondition, "view"},
		"another's deleted":                 {bob.AdmitDelete(shared), failure.KindDenied, "name"},
	} {
		got := failure.From(c.refused)
		if got == nil || got.Kind != c.kind || len(got.Fields) != 1 || got.Fields[0].Path != c.field {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for name, err := range map[string]error{
		"a free name": ada.NameFree(nil), "the own name": ada.NameFree(&mine), "a shared name": bob.NameFree(&shared),
		"the own view, with no room for more": ada.Admit(&mine, mine, MaxOfOwner, MaxOfAll),
		"shared with the right":               bob.Admit(nil, shared, 0, 0), "another's by an admin": admin.Admit(&shared, shared, 0, 0),
		"the own deleted": ada.AdmitDelete(mine), "another's deleted by an admin": admin.AdmitDelete(mine),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOthersSeeNothingOfAPersonalView(t *testing.T) {
	t.Parallel()
	if got := admin.Visible(mine); got.Title != "" || got.CreatedBy != "ada" {
		t.Errorf("an admin sees %+v", got)
	}
	for _, c := range []struct {
		who        Caller
		v          *View
		withDelete bool
		want       bool
	}{
		{ada, &mine, false, true}, {bob, &mine, false, false}, {bob, &mine, true, false}, {admin, &mine, false, false},
		{admin, &mine, true, true}, {bob, &shared, false, true}, {ada, nil, true, false},
	} {
		if got := c.who.Finds(c.v, c.withDelete); got != c.want {
			t.Errorf("%s finds %+v (to delete: %t): %t", c.who.Actor, c.v, c.withDelete, got)
		}
	}
}
