// SPDX-License-Identifier: Apache-2.0

// Command image writes the OCI image of Weft: an index with an image for each
// architecture, as a layout in a tar file that container runtimes import. It
// needs the binaries in DIR/amd64 and DIR/arm64 and no container engine.
//
// The same binaries, name, version, revision and time make the same bytes. Name
// and time are by default those of the checkout that it is run in: the image
// that the chart asks for, made when the last commit was.
//
//	go run ./hack/image -version v0.1.0 -o bin/weft-image.tar
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// chartFile says which image the manifests ask for.
const chartFile = "deploy/chart/Chart.yaml"

func main() {
	log.SetFlags(0)
	log.SetPrefix("image: ")
	var i image
	bin := flag.String("bin", "bin", "directory with a directory of binaries for each architecture")
	architectures := flag.String("architectures", "amd64,arm64", "architectures, separated by commas")
	out := flag.String("o", "bin/weft-image.tar", "file to write")
	created := flag.String("created", "", "time of the image in seconds since 1970 (default: $SOURCE_DATE_EPOCH, or else that of the commit)")
	flag.StringVar(&i.name, "name", "", "name with tag under which runtimes store the image (default: weft.dev/weft, tag of "+chartFile+")")
	flag.StringVar(&i.version, "version", "dev", "version for the labels")
	flag.StringVar(&i.revision, "revision", "", "commit for the labels (default: that of the checkout)")
	flag.Parse()
	err := i.complete(*created)
	if err == nil {
		err = run(i, *bin, strings.Split(*architectures, ","), *out)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// complete fills in what the flags do not say.
func (i *image) complete(created string) error {
	var errs []error
	fill := func(value *string, find func() (string, error)) {
		if *value == "" {
			var err error
			*value, err = find()
			errs = append(errs, err)
		}
	}
	created = cmp.Or(created, os.Getenv("SOURCE_DATE_EPOCH"))
	fill(&created, func() (string, error) { return git("log", "-1", "--format=%ct") })
	fill(&i.revision, func() (string, error) { return git("rev-parse", "HEAD") })
	fill(&i.name, chartImage)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(created, 10, 64)
	if err != nil {
		return fmt.Errorf("time %q: want seconds since 1970, by -created or SOURCE_DATE_EPOCH", created)
	}
	i.created = time.Unix(seconds, 0).UTC()
	return nil
}

func git(args ...string) (string, error) {
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w; outside a checkout give -created and -revision", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

func chartImage() (string, error) {
	raw, err := os.ReadFile(chartFile)
	if err != nil {
		return "", fmt.Errorf("read the chart's version: %w; run this at the top of the repository, or give -name", err)
	}
	var chart struct {
		AppVersion string `json:"appVersion"`
	}
	if err := yaml.Unmarshal(raw, &chart); err != nil {
		return "", fmt.Errorf("parse %s: %w", chartFile, err)
	}
	if chart.AppVersion == "" {
		return "", fmt.Errorf("%s has no appVersion; want the tag of the image", chartFile)
	}
	return "weft.dev/weft:" + chart.AppVersion, nil
}

func run(i image, bin string, architectures []string, out string) error {
	index, err := i.index(bin, architectures)
	if err != nil {
		return err
	}
	if err := i.write(index, out); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s %s@%s\n", out, i.name, digest)
	return nil
}
