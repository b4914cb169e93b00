// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"

	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/journal"
)

// ForgetBoots removes the journals of earlier boots. Namespaces and interfaces
// ended with the boot; what a delegated IPAM plugin granted may not have, so
// its DEL is called first. A journal whose delegates cannot be reached stays
// for the next attempt.
func (e *Engine) ForgetBoots(ctx context.Context) ([]Finding, error) {
	files, err := journal.Stale(e.Instance)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	var errs []error
	for _, f := range files {
		found, err := e.forgetBoot(ctx, f)
		findings = append(findings, found...)
		if err == nil {
			err = journal.RemoveStale(f)
		}
		errs = append(errs, err)
	}
	return findings, errors.Join(errs...)
}

func (e *Engine) forgetBoot(ctx context.Context, f journal.StaleFile) ([]Finding, error) {
	if !f.Journal {
		return nil, nil
	}
	// Damaged lines are of no consequence: whatever they said has ended.
	old, _, err := journal.ReadStale(f, facts.New)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	var errs []error
	for _, rec := range old.Records() {
		finding := Finding{Key: rec.Key, Addresses: texts(rec.Addresses), Observed: "boot " + f.Boot + " is over", Action: "released"}
		d, err := rec.Detail()
		if err == nil && d.Delegate != nil {
			err = e.Delegates.Release(ctx, rec.Key, *d.Delegate)
		}
		finding.Err = err
		findings, errs = append(findings, finding), append(errs, err)
	}
	return findings, errors.Join(errs...)
}
