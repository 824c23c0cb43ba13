// Copyright: (c) 2026, gpufleet.acceptance contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// kwok, whose templates can ask with which message the container of a pod has ended: {{ LastWords . }}. Who answers is the server of
// its logs (control/pod_logs.py).
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	_ "unsafe" // for linkname

	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/gotpl"
	"sigs.k8s.io/kwok/pkg/utils/signals"

	"github.com/spf13/pflag"
)

const server = "http://127.0.0.1:10252/message"

// Functions of every template; kwok has no other way to add one.
//
//go:linkname functions sigs.k8s.io/kwok/pkg/utils/gotpl.defaultFuncs
var functions gotpl.FuncMap

func lastWords(pod any) (string, error) {
	asked, err := json.Marshal(pod)
	if err != nil {
		return "", err
	}
	answer, err := http.Post(server, "application/json", bytes.NewReader(asked))
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", server, said)
	}
	return string(said), err
}

func main() {
	functions["LastWords"] = lastWords
	flags := pflag.NewFlagSet("kwok", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	ctx, _ := log.InitFlags(signals.SetupSignalContext(), flags)
	ctx, err := config.InitFlags(ctx, flags)
	if err == nil {
		kwok := cmd.NewCommand(ctx)
		kwok.PersistentFlags().AddFlagSet(flags)
		err = kwok.ExecuteContext(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
