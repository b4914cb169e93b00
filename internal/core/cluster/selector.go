// SPDX-License-Identifier: Apache-2.0

package cluster

import "slices"

// Selector is a Kubernetes label selector: all requirements hold. The zero
// value selects everything.
type Selector []Requirement

// Requirement is one condition on labels.
type Requirement struct {
	Key      string
	Operator Operator
	Values   []string
}

// Operator of a requirement, as in metav1.LabelSelectorOperator.
type Operator string

// Operators.
const (
	In           Operator = "In"
	NotIn        Operator = "NotIn"
	Exists       Operator = "Exists"
	DoesNotExist Operator = "DoesNotExist"
)

// Matches reports whether labels fulfil the selector.
func (s Selector) Matches(labels map[string]string) bool {
	for _, r := range s {
		if !r.matches(labels) {
			return false
		}
	}
	return true
}

func (r Requirement) matches(labels map[string]string) bool {
	value, has := labels[r.Key]
	switch r.Operator {
	case In:
		return has && slices.Contains(r.Values, value)
	case NotIn:
		return !has || !slices.Contains(r.Values, value)
	case Exists:
		return has
	case DoesNotExist:
		return !has
	}
	return false
}
