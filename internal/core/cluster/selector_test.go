// SPDX-License-Identifier: Apache-2.0

package cluster

import "testing"

func TestSelectorMatches(t *testing.T) {
	labels := map[string]string{"zone": "a", "disk": ""}
	one := func(key string, op Operator, values ...string) Selector {
		return Selector{{Key: key, Operator: op, Values: values}}
	}
	cases := map[string]struct {
		selector Selector
		want     bool
	}{
		"the zero value":                {nil, true},
		"no requirement":                {Selector{}, true},
		"In, one of them":               {one("zone", In, "b", "a"), true},
		"In, none of them":              {one("zone", In, "b"), false},
		"In, no such label":             {one("rack", In, "a"), false},
		"In, no label is not empty":     {one("rack", In, ""), false},
		"In, empty value":               {one("disk", In, ""), true},
		"NotIn, one of them":            {one("zone", NotIn, "b", "a"), false},
		"NotIn, none of them":           {one("zone", NotIn, "b"), true},
		"NotIn, no such label":          {one("rack", NotIn, "a"), true},
		"Exists":                        {one("zone", Exists), true},
		"Exists, empty value":           {one("disk", Exists), true},
		"Exists, no such label":         {one("rack", Exists), false},
		"DoesNotExist":                  {one("rack", DoesNotExist), true},
		"DoesNotExist, there is one":    {one("disk", DoesNotExist), false},
		"all requirements hold":         {append(one("zone", In, "a"), one("disk", Exists)...), true},
		"one of two does not hold":      {append(one("zone", In, "a"), one("rack", Exists)...), false},
		"an unknown operator":           {one("zone", "Like", "a"), false},
		"an operator in the wrong case": {one("zone", "in", "a"), false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := c.selector.Matches(labels); got != c.want {
				t.Errorf("%v matches %v: %t, want %t", c.selector, labels, got, c.want)
			}
		})
	}
	if !one("zone", NotIn, "a").Matches(nil) || one("zone", Exists).Matches(nil) {
		t.Error("no labels are not treated like labels without the key")
	}
}
