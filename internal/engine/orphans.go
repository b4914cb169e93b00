// SPDX-License-Identifier: Apache-2.0

package engine

// removeOrphans removes what is left of attachments whose interface is gone:
// the kernel removes that with the sandbox, but not what belongs to it on the
// host's side. Records are not looked at: what an attachment without an
// interface has leads nowhere, and its record ends by itself.
func (e *Engine) removeOrphans() ([]Finding, error) {
	orphans, err := e.Kernel.RemoveOrphans()
	var findings []Finding
	for _, o := range orphans {
		findings = append(findings, Finding{Key: o.Key, Observed: o.Object + " without its interface " + o.HostIfname, Action: "removed"})
	}
	return findings, err
}
