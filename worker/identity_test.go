package worker

import (
	"strings"
	"testing"
)

func TestAWorkerBelongsToOneClusterForEver(t *testing.T) {
	s, err := openStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for range 2 {
		if err := s.join("cluster-one"); err != nil {
			t.Error(err)
		}
	}
	if err := s.join("cluster-two"); err == nil || !strings.Contains(err.Error(), "belongs to cluster cluster-one, and the server to cluster-two") {
		t.Error(err)
	}
}

func TestIdentityOutlivesTheAgentAndItsSessionDoesNot(t *testing.T) {
	s, err := openStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	a, err := identify(s, "node-1", true)
	if err != nil {
		t.Fatal(err)
	}
	b, err := identify(s, "node-1", true)
	if err != nil {
		t.Fatal(err)
	}
	if a.Instance != b.Instance || a.Hardware != b.Hardware || a.Boot != b.Boot {
		t.Errorf("%+v, then %+v", a, b)
	}
	if c, err := identify(s, "node-2", true); err != nil || c.Hardware == a.Hardware {
		t.Errorf("another simulated machine: %+v, %v", c, err)
	}
}

func TestPlaceholdersOfMainboardsAreNoIdentity(t *testing.T) {
	for uuid, ok := range map[string]bool{
		"4c4c4544-0039-3510-8053-b4c04f4d3732": true,
		"00000000-0000-0000-0000-000000000000": false,
		"ffffffff-ffff-ffff-ffff-ffffffffffff": false,
		"03000200-0400-0500-0006-000700080009": false,
		"Not Settable":                         false,
	} {
		if plausibleUUID(uuid) != ok {
			t.Errorf("%s: %v", uuid, !ok)
		}
	}
}
