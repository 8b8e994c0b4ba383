package rpc_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/wire"
)

// certificate makes one for 127.0.0.1 and what trusts it.
func certificate(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(parsed)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, &tls.Config{RootCAs: trusted}
}

func TestAListenerWithTLSTakesOnlyTLS(t *testing.T) {
	server, trusting := certificate(t)
	c := startCluster(t, 1)
	serve := func(on func(net.Listener, *tls.Config) error) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() { defer close(served); _ = on(l, server) }()
		t.Cleanup(func() { c.members[0].rpc.Stop(); <-served })
		return l.Addr().String()
	}
	address := serve(c.members[0].rpc.Serve)
	for name, try := range map[string]struct {
		secure *tls.Config
		works  bool
	}{"with TLS": {trusting, true}, "in plaintext": {nil, false}, "with TLS that trusts others": {&tls.Config{}, false}} {
		client, err := rpc.Dial([]string{address}, rpc.Options{TLS: try.secure, Patience: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.ListJobs(soon(t), &wire.ListJobsRequest{})
		if try.works && err != nil || !try.works && muster.KindOf(err) != muster.KindUnavailable {
			t.Errorf("%s: %v", name, err)
		}
		_ = client.Close()
	}

	web := &http.Client{Transport: &http.Transport{TLSClientConfig: trusting, DisableKeepAlives: true}}
	reply, err := web.Get("https://" + serve(c.members[0].rpc.ServeHTTP) + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	_ = reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		t.Errorf("HTTP over TLS: %s", reply.Status)
	}
}
