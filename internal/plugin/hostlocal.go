// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bufio"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"weft.dev/weft/internal/cni"
)

// hostLocalDataDir is where host-local keeps its reservations unless its
// "dataDir" says otherwise.
const hostLocalDataDir = "/var/lib/cni/networks"

// hostLocalReserved reports the addresses that the reference host-local still
// holds in a network, so that changing "type" is all it takes to switch: pods
// that it served keep their addresses until their DEL, which may come to us
// (see releaseHostLocal).
//
// The directory is read once, when the first address is asked about; where
// host-local was never used, there is none.
func hostLocalReserved(dataDir, network string) func(netip.Addr) bool {
	if dataDir == "" {
		dataDir = hostLocalDataDir
	}
	held := sync.OnceValue(func() map[netip.Addr]bool {
		entries, err := os.ReadDir(filepath.Join(dataDir, network))
		if err != nil {
			return nil
		}
		addrs := make(map[netip.Addr]bool, len(entries))
		for _, e := range entries {
			// One file per address; "lock" and "last_reserved_ip.N" are no addresses.
			if a, err := netip.ParseAddr(strings.ReplaceAll(e.Name(), "_", ":")); err == nil {
				addrs[a] = true
			}
		}
		return addrs
	})
	return func(a netip.Addr) bool { return held()[a] }
}

// releaseHostLocal removes what host-local still holds for an attachment: after
// a switch the runtime sends the DEL of its pods to us.
func releaseHostLocal(dataDir, network, container, ifname string) error {
	if dataDir == "" {
		dataDir = hostLocalDataDir
	}
	dir := filepath.Join(dataDir, network)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // host-local was never used here
	}
	var errs []error
	for _, e := range entries {
		if _, err := netip.ParseAddr(strings.ReplaceAll(e.Name(), "_", ":")); err != nil {
			continue
		}
		path := filepath.Join(dir, e.Name())
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // another DEL was faster
		}
		// The container, and since its version 0.7 the interface on a second line.
		lines := strings.Fields(string(raw))
		if len(lines) > 0 && lines[0] == container && (len(lines) == 1 || lines[1] == ifname) {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}

// ipamDNS returns the DNS settings of the ipam section: its "dns", else what
// the file named by "resolvConf" says.
func ipamDNS(c *cni.IPAMConfig) cni.DNS {
	if !c.DNS.IsZero() || c.ResolvConf == "" {
		return c.DNS
	}
	return readResolvConf(c.ResolvConf)
}

// readResolvConf reads a resolv.conf(5); a missing file gives nothing.
func readResolvConf(path string) cni.DNS {
	var dns cni.DNS
	f, err := os.Open(path)
	if err != nil {
		return dns
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") || strings.HasPrefix(fields[0], ";") {
			continue
		}
		switch fields[0] {
		case "nameserver":
			dns.Nameservers = append(dns.Nameservers, fields[1])
		case "domain":
			dns.Domain = fields[1]
		case "search":
			dns.Search = append(dns.Search, fields[1:]...)
		case "options":
			dns.Options = append(dns.Options, fields[1:]...)
		}
	}
	return dns
}
