package rpc

import (
	"os/user"
	"slices"
	"testing"
)

func TestAUsersGroupsAreThoseOfTheMachine(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	primary, err := user.LookupGroupId(me.Gid)
	if err != nil {
		t.Fatal(err)
	}
	if got := groupsHere(me.Username); !slices.Contains(got, primary.Name) {
		t.Errorf("%s is in %v, without %s", me.Username, got, primary.Name)
	}
	if got := groupsHere("nobody-of-that-name"); got != nil {
		t.Errorf("%v", got)
	}
	looks := 0
	book := newGroupBook(func(string) []string { looks++; return []string{"nlp"} })
	if first, again := book.of("ann"), book.of("ann"); looks != 1 || !slices.Equal(first, again) {
		t.Errorf("%d looks: %v %v", looks, first, again)
	}
}
