// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"time"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/kernel"
)

// Problem is a place where record, namespace and interface disagree.
type Problem struct {
	Object string `json:"object"`
	Found  string `json:"found"`
	Action string `json:"action"` // what happens now, or what to do
}

// Header implements view.Row.
func (Problem) Header() []string { return []string{"OBJECT", "FOUND", "ACTION"} }

// Cells implements view.Row.
func (p Problem) Cells() []string { return []string{p.Object, p.Found, p.Action} }

// Links is what Problems needs of the kernel.
type Links interface {
	Owned() ([]kernel.Owned, error)
}

// Problems compares the records with namespaces and interfaces. instance is
// the state directory, by which our interfaces name the Weft they belong to.
func Problems(f *facts.Facts, links Links, instance string, now time.Time) ([]Problem, error) {
	owned, err := links.Owned()
	if err != nil {
		return nil, err
	}
	present := make(names, len(owned))
	for _, o := range owned {
		present[o.HostIfname] = true
	}
	var problems []Problem
	for _, rec := range f.Records() {
		p, err := recordProblem(rec, present, now)
		if err != nil {
			return nil, err
		}
		if p.Found != "" {
			p.Object = "attachment " + rec.Key.String() + " " + joined(rec.Addresses)
			problems = append(problems, p)
		}
	}
	for _, o := range owned {
		owner, k, _, ok := attach.ParseAlias(o.Alias)
		if !ok || owner != instance {
			continue
		}
		if _, found := f.Get(k); !found {
			problems = append(problems, Problem{
				Object: "interface " + o.HostIfname, Found: fmt.Sprintf("no record of %s %s", k, joined(o.Addresses)),
				Action: "garbage collection will adopt it",
			})
		}
	}
	return problems, nil
}

func recordProblem(rec facts.Record, present names, now time.Time) (Problem, error) {
	if rec.Phase != facts.Complete {
		age := now.Sub(time.Unix(0, rec.Since)).Truncate(time.Millisecond)
		return Problem{Found: fmt.Sprintf("in phase %s for %s", rec.Phase, age), Action: "a call is at work, or garbage collection will finish it"}, nil
	}
	d, err := rec.Detail()
	if err != nil {
		return Problem{}, err
	}
	ev, err := engine.Witness(rec, present, true)
	if err != nil {
		return Problem{}, err
	}
	switch {
	case ev.Dead():
		action := "garbage collection will release it at the second look"
		if rec.Suspect != 0 {
			action = "suspected since " + time.Unix(0, rec.Suspect).UTC().Format(time.RFC3339) + "; " + action
		}
		return Problem{Found: "sandbox " + d.Netns + " is gone", Action: action}, nil
	case rec.Kind == facts.Veth && !ev.Link:
		return Problem{Found: "the sandbox lives, its interface is gone", Action: "restart the pod"}, nil
	}
	return Problem{}, nil
}

// names are the host ends that exist.
type names map[string]bool

// LinkExists implements engine.Links.
func (n names) LinkExists(name string) (bool, error) { return n[name], nil }
