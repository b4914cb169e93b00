// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"io/fs"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/kernel"
)

// explain gives an error the code that the runtime decides by. The message is
// the error's own: it already names object, expectation and finding.
func explain(err error) *cni.Error {
	if err == nil {
		return nil
	}
	var already *cni.Error
	if errors.As(err, &already) {
		return &cni.Error{Code: already.Code, Msg: err.Error(), Details: already.Details, Err: err}
	}
	return &cni.Error{Code: codeOf(err), Msg: err.Error(), Err: err}
}

func codeOf(err error) cni.Code {
	switch {
	case is[*ipam.ExhaustedError](err), is[*journal.OwnedError](err), errors.Is(err, context.DeadlineExceeded):
		return cni.CodeTryAgain
	case is[*ipam.InUseError](err), is[*facts.AddressError](err), is[*kernel.RouteExistsError](err):
		return cni.CodeAddressInUse
	case is[*facts.PortError](err), is[*kernel.PortTakenError](err):
		return cni.CodePortInUse
	case is[*ipam.NotInPoolError](err), is[*ipam.WantError](err), is[*engine.PlanError](err):
		return cni.CodeConfig
	case is[*engine.AttachedError](err), is[*kernel.ExistsError](err):
		return cni.CodeExists
	case is[*engine.DriftError](err), errors.Is(err, engine.ErrNotRecorded):
		return cni.CodeDrift
	case is[*kernel.NotNetnsError](err):
		return cni.CodeNetns
	case is[*journal.CorruptError](err), is[*journal.VersionError](err), is[*journal.DirError](err), is[*fs.PathError](err):
		return cni.CodeIO
	default:
		return cni.CodeKernel
	}
}

func is[T error](err error) bool {
	var target T
	return errors.As(err, &target)
}

func netnsError(path string, err error) *cni.Error {
	return &cni.Error{Code: cni.CodeNetns, Msg: "CNI_NETNS=" + path + ": " + err.Error(), Err: err}
}

func ownNetnsError(path string) *cni.Error {
	return cni.Errorf(cni.CodeNetns, "CNI_NETNS=%s is the host's own network namespace: want that of a sandbox", path)
}
