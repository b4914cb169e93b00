// SPDX-License-Identifier: Apache-2.0

package cni

import "encoding/json"

// NewestVersion is the version in which results are recorded: the one that
// holds everything.
const NewestVersion = newestVersion

// DecodeError reads an error object, as Encode writes it and as every plugin
// must: it fails where raw is none.
func DecodeError(raw []byte) (*Error, error) {
	var object struct {
		Code    Code   `json:"code"`
		Msg     string `json:"msg"`
		Details string `json:"details"`
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	if object.Code == 0 {
		return nil, Errorf(CodeDecode, "error object without a code: %s", quote(string(raw)))
	}
	return &Error{Code: object.Code, Msg: object.Msg, Details: object.Details}, nil
}
