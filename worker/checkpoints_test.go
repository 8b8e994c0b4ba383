package worker

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// shareCheckpoints is a server's welcome that names a folder for checkpoints.
func (c *conversation) shareCheckpoints(folder string) {
	c.t.Helper()
	c.send(&wire.ToWorker{Message: &wire.ToWorker_Welcome{Welcome: &wire.Welcome{Node: 1, Cluster: "cluster-one", Checkpoints: folder}}})
}

func TestCheckpointsLieWhereTheServersSay(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.agent()
	shared := t.TempDir()
	c := s.accept(t)
	c.shareCheckpoints(shared)
	c.view(at(10), true, nil, lone(id(1)))
	c.renewed(c.awaitRenew(id(1)))
	n.machine.awaitRunning(t, id(1))
	if info, err := os.Stat(filepath.Join(shared, "1001")); err != nil || !info.IsDir() {
		t.Errorf("the folder of job 1001: %v", err)
	}
}

func TestASharedFolderThatIsNotMountedIsNotMade(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.agent()
	missing := filepath.Join(t.TempDir(), "nfs")
	c := s.accept(t)
	c.shareCheckpoints(missing)
	c.view(at(10), true, nil, lone(id(1)))
	if _, ended := c.awaitReport(id(1), muster.AllocEnded); ended.Class != muster.ClassPrepare ||
		ended.Message != "node node-1: the folder for checkpoints, "+missing+", isn't there" {
		t.Errorf("%+v", ended)
	}
}
