// SPDX-License-Identifier: Apache-2.0

// Package conformance runs a CNI plugin binary as a black box and holds it
// against the CNI specification, one case per MUST and SHOULD.
//
// A Case is one sentence of the specification (or of its CONVENTIONS, or of
// what Weft promises beyond it) and a function that tries it. A Subject is a
// plugin under test: Weft thin, Weft thick and, for comparison, the reference
// ptp. Every case runs against every subject that has what it needs, and the
// run ends in a table of case by subject; WEFT_CONFORMANCE_REPORT names a file
// to which it is written as markdown.
//
// What the suite sees of a subject is what a runtime sees: the environment and
// stdin that it gives; stdout, stderr and the exit code that it gets; and the
// kernel's state before and after. It imports none of Weft's packages.
//
// Each case has a network namespace of its own that plays the host, with fresh
// namespaces for pods; the whole run happens in private mount, network and
// process namespaces, so the machine's own are never touched, and nothing is
// left behind even by a run that is killed.
//
// A case that a subject fails, knowingly, is listed among the subject's
// deviations with the reason. A deviation that no longer happens fails the run
// too, so the list cannot rot. The list of a Weft subject is empty and stays so.
//
// That the cases can fail is tested as well: each is run against a plugin that
// always succeeds silently and one that always fails silently, and must reject
// at least one of them.
//
// Environment: WEFT_BIN is the directory of weft-cni, weft-ipam and weft (bin/
// of the repository where unset); WEFT_CACHE as in test/refplugins/build.sh.
package conformance
