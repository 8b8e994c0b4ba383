//go:build chaos

package chaos

import (
	"os"
	"path/filepath"
	"testing"
)

// What a run needs of the machine it runs on, said before anything is built: root, namespaces, tun devices, cgroups.
func TestThisMachineIsAble(t *testing.T) {
	able(t)
	network := NewNetwork(1)
	defer network.Close()
	host, err := network.AddHost("one", 1)
	if err != nil {
		t.Fatal(err)
	}
	b, err := startBoot(host, filepath.Join(t.TempDir(), "boot_id"))
	if err != nil {
		t.Fatal(err)
	}
	b.cut()
	removeCgroups()
}

// able fails a test that this machine can't run, with the reason.
func able(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this needs root: machines are namespaces")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Fatalf("this needs tun devices, of which the network is made: %v", err)
	}
}
