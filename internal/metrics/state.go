// SPDX-License-Identifier: Apache-2.0

package metrics

import "github.com/prometheus/client_golang/prometheus"

// state is the collector of what is read at each scrape.
type state struct{ read func() Snapshot }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	ready = desc("weft_ready", "1 if the agent can serve pods now, as /readyz says.")

	poolSize    = desc("weft_pool_addresses", "Addresses of this node's blocks that pods can get, by pool and family.", "pool", "family")
	poolUsed    = desc("weft_pool_used_addresses", "Of them, those that pods have.", "pool", "family")
	poolKept    = desc("weft_pool_kept_addresses", "Of them, those that no pod has now and that AddressClaims keep.", "pool", "family")
	poolCooling = desc("weft_pool_cooling_addresses", "Of them, those released so recently that they are given last.", "pool", "family")
	poolForeign = desc("weft_pool_foreign_addresses", "Addresses that pods have and that are not given any more.", "pool", "family")

	attachments = desc("weft_attachments", "Pods' interfaces on record, by phase; only complete ones are to stay.", "phase")
	leases      = desc("weft_leases", "Blocks whose leases are used here: of this node (self), and of others.", "owner")
	refused     = desc("weft_rejected_leases", "Leases of other nodes that no way leads to.")

	contact      = desc("weft_registry_connected", "1 if what the API server (or the directory) says arrives.")
	contactSince = desc("weft_registry_contact_change_timestamp_seconds", "When that contact began or was lost, in Unix time.")
	rejected     = desc("weft_rejected_objects", "Objects of the registry that are not used because they are wrong.")

	desired  = desc("weft_reconcile_desired_objects", "Kernel objects that are wanted, by kind.", "kind")
	pending  = desc("weft_reconcile_pending_objects", "Kernel objects that are not as wanted yet, by kind.", "kind")
	failing  = desc("weft_reconcile_failing_objects", "Operations that failed and are tried again, by kind.", "kind")
	inSync   = desc("weft_reconcile_in_sync", "1 if the kernel has all that is wanted and no more, by kind.", "kind")
	lag      = desc("weft_reconcile_lag_seconds", "Age of the oldest change that the kernel does not have yet, by kind; 0: it has all.", "kind")
	readTook = desc("weft_reconcile_read_duration_seconds", "How long the last reading of the kernel took, by kind.", "kind")

	journalRecords = desc("weft_journal_records", "Attachments and reservations in the journal.")
	journalBytes   = desc("weft_journal_size_bytes", "Size of the journal's file.")
	reaping        = desc("weft_interfaces_pending_removal", "Interfaces whose DEL is answered and that are still to be removed.")
	collected      = desc("weft_garbage_collected_total", "What garbage collection did since the agent started, by action.", "action")
)

// Describe implements prometheus.Collector.
func (state) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		ready, poolSize, poolUsed, poolKept, poolCooling, poolForeign, attachments, leases, refused, contact, contactSince, rejected,
		desired, pending, failing, inSync, lag, readTook, journalRecords, journalBytes, reaping, collected,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (s state) Collect(out chan<- prometheus.Metric) {
	now := s.read()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(ready, truth(now.Ready))
	for _, p := range now.Pools {
		gauge(poolSize, float64(p.Size), p.Pool, p.Family)
		gauge(poolUsed, float64(p.Used), p.Pool, p.Family)
		gauge(poolKept, float64(p.Kept), p.Pool, p.Family)
		gauge(poolCooling, float64(p.Cooling), p.Pool, p.Family)
		gauge(poolForeign, float64(p.Foreign), p.Pool, p.Family)
	}
	for _, a := range now.Attachments {
		gauge(attachments, float64(a.Count), a.Phase)
	}
	if now.Registry.Configured {
		gauge(leases, float64(now.Leases.Own), "self")
		gauge(leases, float64(now.Leases.Others), "others")
		gauge(refused, float64(now.Leases.Rejected))
		gauge(contact, truth(now.Registry.Contact))
		gauge(rejected, float64(now.Registry.Rejected))
		if !now.Registry.Since.IsZero() {
			gauge(contactSince, float64(now.Registry.Since.UnixNano())/1e9)
		}
	}
	for _, k := range now.Kinds {
		gauge(desired, float64(k.Desired), k.Kind)
		gauge(pending, float64(k.Pending), k.Kind)
		gauge(failing, float64(k.Failing), k.Kind)
		gauge(inSync, truth(k.InSync), k.Kind)
		gauge(lag, k.Lag.Seconds(), k.Kind)
		gauge(readTook, k.ReadTook.Seconds(), k.Kind)
	}
	gauge(journalRecords, float64(now.JournalRecords))
	gauge(journalBytes, float64(now.JournalBytes))
	gauge(reaping, float64(now.Reaping))
	for _, c := range now.Collected {
		out <- prometheus.MustNewConstMetric(collected, prometheus.CounterValue, float64(c.Count), c.Action)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
