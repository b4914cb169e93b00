// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority signs all certificates of a cluster.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// pki is the path of a file with keys or certificates.
func (c *Cluster) pki(name string) string { return filepath.Join(c.opts.Dir, "pki", name) }

// makePKI makes the authority and what the control plane needs of it.
func (c *Cluster) makePKI() error {
	if err := os.MkdirAll(c.pki(""), 0o700); err != nil {
		return fmt.Errorf("make directory for keys: %w", err)
	}
	if err := c.makeAuthority(); err != nil {
		return err
	}
	server := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		IPAddresses: []net.IP{net.ParseIP("127.0.0.1"), net.ParseIP("::1"), net.ParseIP(serviceAPI4), net.ParseIP(serviceAPI6)},
	}
	for _, a := range c.family.addresses(1) {
		server.IPAddresses = append(server.IPAddresses, a.AsSlice())
	}
	if err := c.issue("kube-apiserver", server); err != nil {
		return err
	}
	if err := c.issue("kubelet-client", client("kube-apiserver", "system:masters")); err != nil {
		return err
	}
	// The API server signs service account tokens with it.
	return c.issue("service-account", client("service-account", ""))
}

// client is the template of a client's certificate.
func client(user, group string) *x509.Certificate {
	name := pkix.Name{CommonName: user}
	if group != "" {
		name.Organization = []string{group}
	}
	return &x509.Certificate{Subject: name, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
}

func (c *Cluster) makeAuthority() error {
	made, err := sign("ca", &x509.Certificate{
		Subject:               pkix.Name{CommonName: "weft-test-cluster"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}, nil)
	if err != nil {
		return err
	}
	return c.keep("ca", made)
}

// pair is a certificate and its key in PEM.
type pair struct{ cert, key []byte }

// issue makes NAME.crt and NAME.key.
func (c *Cluster) issue(name string, template *x509.Certificate) error {
	ca, err := c.readAuthority()
	if err != nil {
		return err
	}
	made, err := sign(name, template, ca)
	if err != nil {
		return err
	}
	return c.keep(name, made)
}

func (c *Cluster) keep(name string, p pair) error {
	for suffix, data := range map[string][]byte{".crt": p.cert, ".key": p.key} {
		if err := os.WriteFile(c.pki(name+suffix), data, 0o600); err != nil {
			return fmt.Errorf("write %s%s: %w", name, suffix, err)
		}
	}
	return nil
}

// sign makes a key and its certificate, signed by ca or (nil) by the key itself.
func sign(name string, template *x509.Certificate, ca *authority) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make key %s: %w", name, err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return pair{}, fmt.Errorf("make serial number of %s: %w", name, err)
	}
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().AddDate(1, 0, 0)
	if ca == nil {
		ca = &authority{cert: template, key: key}
	} else {
		template.KeyUsage = x509.KeyUsageDigitalSignature
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		return pair{}, fmt.Errorf("sign certificate %s: %w", name, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, fmt.Errorf("encode key %s: %w", name, err)
	}
	return pair{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	}, nil
}

// readAuthority reads the authority back, also for nodes that come later.
func (c *Cluster) readAuthority() (*authority, error) {
	var der [2][]byte
	for i, file := range []string{"ca.crt", "ca.key"} {
		data, err := os.ReadFile(c.pki(file))
		if err != nil {
			return nil, fmt.Errorf("read authority: %w", err)
		}
		block, _ := pem.Decode(data)
		if block == nil {
			return nil, fmt.Errorf("read authority: expected PEM in %s, found none", c.pki(file))
		}
		der[i] = block.Bytes
	}
	cert, err := x509.ParseCertificate(der[0])
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", c.pki("ca.crt"), err)
	}
	key, err := x509.ParsePKCS8PrivateKey(der[1])
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", c.pki("ca.key"), err)
	}
	return &authority{cert: cert, key: key.(*ecdsa.PrivateKey)}, nil
}

// writeKubeconfig makes a certificate for a user and writes a kubeconfig that
// needs no other file.
func (c *Cluster) writeKubeconfig(path, server, user, group string) error {
	ca, err := c.readAuthority()
	if err != nil {
		return err
	}
	made, err := sign(user, client(user, group), ca)
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(c.pki("ca.crt"))
	if err != nil {
		return fmt.Errorf("write kubeconfig of %s: %w", user, err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["weft"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: authority}
	config.AuthInfos["weft"] = &clientcmdapi.AuthInfo{ClientCertificateData: made.cert, ClientKeyData: made.key}
	config.Contexts["weft"] = &clientcmdapi.Context{Cluster: "weft", AuthInfo: "weft"}
	config.CurrentContext = "weft"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig of %s: %w", user, err)
	}
	return nil
}
