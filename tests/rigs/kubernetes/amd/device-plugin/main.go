// Copyright: (c) 2026, gpufleet.acceptance contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// device-plugin offers the node's simulated AMD GPUs to its kubelet, as AMD's k8s-device-plugin does: a container gets device files,
// /dev/kfd and a renderD* for each device, and no variable. Devices are named by their PCI addresses.
//
// What the GPUs are stands in /opt/simulated/node.conf (GPUS, and partition=MODE/NPS among FAULTS), which is read again every second. The
// device files are in FILES on the node. STRATEGY=mixed offers the resource of the mode, such as amd.com/cpx_nps4, in place of amd.com/gpu.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	conf        = "/opt/simulated/node.conf"
	firstRender = 128
)

var (
	number = regexp.MustCompile(`(?m)^(\w+)="?(\d+)"?$`)
	mode   = regexp.MustCompile(`[" ]partition=(\w+)/(\w+)`)
	parts  = map[string]int{"SPX": 1, "DPX": 2, "QPX": 4, "CPX": 8}
)

func read() string {
	text, _ := os.ReadFile(conf)
	return string(text)
}

func setting(text, name string, otherwise int) int {
	for _, found := range number.FindAllStringSubmatch(text, -1) {
		if found[1] == name {
			value, _ := strconv.Atoi(found[2])
			return value
		}
	}
	return otherwise
}

// partition returns the modes of compute and memory of all GPUs of the node.
func partition(text string) (string, string) {
	if found := mode.FindStringSubmatch(text); found != nil {
		return found[1], found[2]
	}
	return "SPX", "NPS1"
}

// devices returns the PCI addresses of all devices in the order of their render files, as the simulated amd-smi has them.
func devices() []string {
	text := read()
	compute, _ := partition(text)
	found := []string{}
	for gpu := 0; gpu < setting(text, "GPUS", 8); gpu++ {
		for part := 0; part < parts[compute]; part++ {
			found = append(found, fmt.Sprintf("0000:%02x:00.%d", 5+32*gpu%256+gpu/8, part))
		}
	}
	return found
}

func resource() string {
	if os.Getenv("STRATEGY") != "mixed" {
		return "amd.com/gpu"
	}
	compute, memory := partition(read())
	return "amd.com/" + strings.ToLower(compute+"_"+memory)
}

type plugin struct {
	api.UnimplementedDevicePluginServer
}

func (plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	for told := ""; ; {
		now := devices()
		if text := fmt.Sprint(now); text != told {
			offered := []*api.Device{}
			for place, address := range now {
				numa := []*api.NUMANode{{ID: int64(2 * place / max(len(now), 1))}}
				offered = append(offered, &api.Device{ID: address, Health: api.Healthy, Topology: &api.TopologyInfo{Nodes: numa}})
			}
			if err := stream.Send(&api.ListAndWatchResponse{Devices: offered}); err != nil {
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

func file(name string) *api.DeviceSpec {
	return &api.DeviceSpec{HostPath: filepath.Join(os.Getenv("FILES"), name), ContainerPath: filepath.Join("/dev", name), Permissions: "rw"}
}

func (plugin) Allocate(_ context.Context, asked *api.AllocateRequest) (*api.AllocateResponse, error) {
	render := map[string]int{}
	for place, address := range devices() {
		render[address] = firstRender + place
	}
	answer := &api.AllocateResponse{}
	for _, container := range asked.ContainerRequests {
		given := &api.ContainerAllocateResponse{Devices: []*api.DeviceSpec{file("kfd")}}
		for _, address := range container.DevicesIds {
			place, known := render[address]
			if !known {
				return nil, fmt.Errorf("no GPU at %s", address)
			}
			given.Devices = append(given.Devices, file(fmt.Sprintf("dri/renderD%d", place)))
		}
		answer.ContainerResponses = append(answer.ContainerResponses, given)
	}
	return answer, nil
}

func register(socket, resource string) error {
	kubelet := "unix://" + filepath.Join(api.DevicePluginPath, "kubelet.sock")
	connection, err := grpc.NewClient(kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	limited, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(connection).Register(limited, &api.RegisterRequest{
		Version: api.Version, Endpoint: socket, ResourceName: resource, Options: &api.DevicePluginOptions{},
	}, grpc.WaitForReady(true))
	return err
}

func main() {
	for { // a kubelet that starts removes every plugin's socket and waits to be told again; other modes are another resource
		offered := resource()
		socket := "simulated-" + strings.ReplaceAll(offered, "/", "-") + ".sock"
		path := filepath.Join(api.DevicePluginPath, socket)
		os.Remove(path)
		listener, err := net.Listen("unix", path)
		if err != nil {
			log.Fatal(err)
		}
		server := grpc.NewServer()
		api.RegisterDevicePluginServer(server, plugin{})
		go server.Serve(listener)
		if err := register(socket, offered); err != nil {
			log.Fatal(err)
		}
		log.Printf("%d devices offered as %s", len(devices()), offered)
		for err == nil && resource() == offered {
			time.Sleep(time.Second)
			_, err = os.Stat(path)
		}
		server.Stop()
	}
}
