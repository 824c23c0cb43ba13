// Copyright: (c) 2026, gpufleet.acceptance contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// device-plugin offers the node's simulated GPUs to its kubelet as nvidia.com/gpu. What they are stands in
// /opt/simulated/node.conf (GPUS, IDENTITY), which is read again every second: a node can lose some while it runs.
//
// Environment variables make it the plugin of a system that shares GPUs: RESOURCE is offered in place of nvidia.com/gpu, with
// VIRTUAL_DEVICES ids per GPU (node.conf has the last word), and containers get the MOUNTS (host:container, blanks between
// several) and SETTINGS (NAME=VALUE) of it. A part is taken from the GPU of which most parts are free, as such systems do.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const conf = "/opt/simulated/node.conf"

var (
	resource = variable("RESOURCE", "nvidia.com/gpu")
	socket   = "simulated-" + strings.ReplaceAll(resource, "/", "-") + ".sock"
)

type plugin struct {
	api.UnimplementedDevicePluginServer
}

func variable(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func setting(name string, otherwise int) int {
	text, _ := os.ReadFile(conf)
	for _, word := range strings.Fields(string(text)) {
		if value, found := strings.CutPrefix(word, name+"="); found {
			if number, err := strconv.Atoi(strings.Trim(value, `"`)); err == nil {
				return number
			}
		}
	}
	return otherwise
}

// devices are named as the simulated nvidia-smi names them; the parts of one that is shared have a number each.
func devices() []*api.Device {
	identity := setting("IDENTITY", 1)
	found := []*api.Device{}
	parts := -1
	if text := os.Getenv("VIRTUAL_DEVICES"); text != "" {
		number, err := strconv.Atoi(text)
		if err != nil {
			log.Fatalf("VIRTUAL_DEVICES: expected a number, found %q", text)
		}
		parts = setting("VIRTUAL_DEVICES", number)
	}
	for i := 0; i < setting("GPUS", 8); i++ {
		id := fmt.Sprintf("GPU-%08x-0000-4000-8000-%012x", identity, i)
		if parts < 0 {
			found = append(found, &api.Device{ID: id, Health: api.Healthy})
		}
		for part := 0; part < parts; part++ {
			found = append(found, &api.Device{ID: fmt.Sprintf("%s__%d", id, part), Health: api.Healthy})
		}
	}
	return found
}

func options() *api.DevicePluginOptions {
	return &api.DevicePluginOptions{GetPreferredAllocationAvailable: os.Getenv("VIRTUAL_DEVICES") != ""}
}

func (plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return options(), nil
}

// GetPreferredAllocation takes one part after the other from the GPU with the most free parts. Among equals, order is random.
func (plugin) GetPreferredAllocation(_ context.Context, asked *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	answer := &api.PreferredAllocationResponse{}
	for _, container := range asked.ContainerRequests {
		free := map[string][]string{}
		for _, id := range container.AvailableDeviceIDs {
			gpu, _, _ := strings.Cut(id, "__")
			free[gpu] = append(free[gpu], id)
		}
		taken := slices.Clone(container.MustIncludeDeviceIDs)
		for len(taken) < int(container.AllocationSize) && len(free) > 0 {
			gpus := make([]string, 0, len(free))
			for gpu := range free { // in random order
				gpus = append(gpus, gpu)
			}
			gpu := slices.MaxFunc(gpus, func(a, b string) int { return cmp.Compare(len(free[a]), len(free[b])) })
			if id := free[gpu][0]; !slices.Contains(taken, id) {
				taken = append(taken, id)
			}
			if free[gpu] = free[gpu][1:]; len(free[gpu]) == 0 {
				delete(free, gpu)
			}
		}
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerPreferredAllocationResponse{DeviceIDs: taken})
	}
	return answer, nil
}

func (plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	for told := ""; ; {
		now := devices()
		if text := fmt.Sprint(now); text != told {
			if err := stream.Send(&api.ListAndWatchResponse{Devices: now}); err != nil {
				return err
			}
			told = text
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

func (plugin) Allocate(_ context.Context, asked *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range asked.ContainerRequests {
		gpus := []string{}
		for _, id := range container.DevicesIds {
			gpu, _, _ := strings.Cut(id, "__")
			if !slices.Contains(gpus, gpu) {
				gpus = append(gpus, gpu)
			}
		}
		given := &api.ContainerAllocateResponse{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(gpus, ",")}}
		for _, word := range strings.Fields(os.Getenv("SETTINGS")) {
			name, value, _ := strings.Cut(word, "=")
			given.Envs[name] = value
		}
		for _, word := range strings.Fields(os.Getenv("MOUNTS")) {
			host, inside, _ := strings.Cut(word, ":")
			given.Mounts = append(given.Mounts, &api.Mount{HostPath: host, ContainerPath: inside})
		}
		answer.ContainerResponses = append(answer.ContainerResponses, given)
	}
	return answer, nil
}

func register() error {
	kubelet := "unix://" + filepath.Join(api.DevicePluginPath, "kubelet.sock")
	connection, err := grpc.NewClient(kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	limited, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(connection).Register(limited, &api.RegisterRequest{
		Version: api.Version, Endpoint: socket, ResourceName: resource, Options: options(),
	}, grpc.WaitForReady(true))
	return err
}

func main() {
	path := filepath.Join(api.DevicePluginPath, socket)
	for { // a kubelet that starts removes every plugin's socket and waits to be told again
		os.Remove(path)
		listener, err := net.Listen("unix", path)
		if err != nil {
			log.Fatal(err)
		}
		server := grpc.NewServer()
		api.RegisterDevicePluginServer(server, plugin{})
		go server.Serve(listener)
		if err := register(); err != nil {
			log.Fatal(err)
		}
		log.Printf("%d devices offered as %s", len(devices()), resource)
		for err == nil {
			time.Sleep(time.Second)
			_, err = os.Stat(path)
		}
		server.Stop()
	}
}
